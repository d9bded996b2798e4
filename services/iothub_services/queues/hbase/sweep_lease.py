"""The lease of who sweeps a namespace, when that was done last, and what time it is at HBase.

Knows one row of the queues' index; knows no body.

Theory: two sweeps at once do no harm, they only read everything twice. So the lease is a cell that is swapped: whoever has not
renewed it for `LEASE_MS` has died. All times are HBase's own, the timestamps that it gives to cells of this row; clocks of hubs are never asked.

Row `META`, cell `i:w`: version 1 | state 1 (0 idle, 1 held) | token 8 | last done at (ms) 8. Cell `i:n`: a token, put to read the time.
"""

from __future__ import annotations

import secrets
from struct import Struct
from struct import error as StructError  # noqa: N812 - the standard library's name is no name
from typing import NamedTuple

from iothub.base.errors import ConflictError, CorruptRecordError
from iothub.records import keys
from iothub_services.hbase import calls
from iothub_services.hbase.caller import Caller

LEASE_MS = 10 * 60_000
RENEW_MS = 60_000

_LEASE = b"i:w"
_NOW = b"i:n"
_VERSION = 1
_IDLE, _HELD = 0, 1
_CELL = Struct(">BBQq")


class _Seen(NamedTuple):
    raw: bytes | None
    state: int
    done_at_ms: int
    renewed_at_ms: int
    now_ms: int

    @property
    def is_held(self) -> bool:
        return self.state == _HELD and self.now_ms - self.renewed_at_ms < LEASE_MS


class SweepLease:
    """One process's right to sweep. `table`: the queues' index. For one thread."""

    def __init__(self, caller: Caller, table: bytes) -> None:
        self._caller = caller
        self._table = table
        self._token = secrets.randbits(64)
        self._mine = b""
        self._done_at_ms = 0

    def now_ms(self) -> int:
        """Return HBase's time. Raises BackendError."""
        return self._seen().now_ms

    def acquire(self, every_ms: int = 0) -> int:
        """Take the lease and return HBase's time; 0: it was swept less than `every_ms` ago, or somebody is at it.

        Raises:
            BackendError: HBase cannot be reached, or refused.
            ConflictError: Somebody is at it, and it is asked for now (`every_ms` 0).
            CorruptRecordError: The cell is of another making.
        """
        seen = self._seen()
        if seen.is_held and not every_ms:
            ago_s = max(seen.now_ms - seen.renewed_at_ms, 0) // 1000
            raise ConflictError(f"another sweep is running (last heartbeat {ago_s} s ago); try again when it has ended")
        if seen.is_held or (seen.done_at_ms and seen.now_ms - seen.done_at_ms < every_ms):
            return 0
        self._done_at_ms = seen.done_at_ms
        if not self._swap(seen.raw, _HELD):
            if every_ms:
                return 0
            raise ConflictError("another sweep has just begun; try again when it has ended")
        return seen.now_ms

    def renew(self) -> None:
        """Keep the lease. Raises ConflictError: it ran out, and somebody else has taken it; BackendError."""
        if not self._swap(self._mine, _HELD):
            raise ConflictError(
                "another sweep took over the lease, because this one sent no heartbeat for too long; it ends here"
            )

    def release(self, *, is_done: bool) -> None:
        """Let others sweep; `is_done`: all of it was swept. Raises BackendError."""
        if is_done:
            self._done_at_ms = self.now_ms()
        self._swap(self._mine, _IDLE)

    def _swap(self, expected: bytes | None, state: int) -> bool:
        cell = _CELL.pack(_VERSION, state, self._token, self._done_at_ms)
        is_ours = self._caller.call(calls.check_and_put(self._table, keys.META, _LEASE, expected, (_LEASE, cell)))
        if is_ours:
            self._mine = cell
        return is_ours

    def _seen(self) -> _Seen:
        self._caller.call(calls.mutate_row(self._table, keys.META, {_NOW: secrets.token_bytes(8)}))
        row = self._caller.call(calls.get_row(self._table, keys.META, (_LEASE, _NOW)))
        if row is None or _NOW not in row.cells:
            raise CorruptRecordError("HBase does not return a cell that was just put into the queues' index")
        now_ms, cell = row.cells[_NOW].timestamp, row.cells.get(_LEASE)
        if cell is None:
            return _Seen(None, _IDLE, 0, 0, now_ms)
        try:
            version, state, _, done_at_ms = _CELL.unpack(cell.value)
        except StructError:
            version, state, done_at_ms = 0, 0, 0
        if version != _VERSION:
            raise CorruptRecordError(
                f"the cell of the last sweep has version {cell.value[:1].hex()}, this program knows {_VERSION}: upgrade this program"
            )
        return _Seen(cell.value, state, done_at_ms, cell.timestamp, now_ms)
