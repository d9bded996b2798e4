"""The gateway of `hbase_gateway` with HBase's rules of time, and a caller that speaks to it: answers may be lost, calls refused.

Knows timestamps, deletes that hide what is not above them until a major compaction, and families; not versions of a cell.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from iothub.base.errors import BackendError
from iothub_services.hbase.caller import Caller
from iothub_services.hbase.calls import Call
from iothub_services.hbase.refusals import Effect
from tests.support.hbase.hbase_gateway import Answer, FakeGateway, RefusedError

T = TypeVar("T")

NOW_MS = 1_790_000_000_000


class TimedGateway(FakeGateway):
    """Tables as HBase keeps them, one version per cell."""

    def __init__(self, *tables: bytes) -> None:
        super().__init__()
        self.now = NOW_MS
        self.tables = {table: {} for table in tables}
        self._hidden: dict[tuple[bytes, bytes, bytes], int] = {}  # table, row, column or family: up to which timestamp

    def compact(self) -> None:
        """A major compaction: deletes are forgotten, and what they hid is gone."""
        self._hidden.clear()

    def _put(self, table: bytes, row: bytes, changes: list[dict[int, Any]], timestamp: int | None = None) -> None:
        self.now += 1
        at = self.now if timestamp is None else timestamp
        cells = self.table(table).setdefault(row, {})
        for change in changes:
            if change.get(1):
                self._delete(table, row, change[2], at)
            elif at > self._hidden_to(table, row, change[2]) and at >= cells.get(change[2], (b"", -1))[1]:
                cells[change[2]] = (change[3], at)
        if not cells:
            del self.table(table)[row]

    def _delete(self, table: bytes, row: bytes, name: bytes, at: int) -> None:
        self._hidden[table, row, name] = max(at, self._hidden.get((table, row, name), -1))
        cells = self.table(table)[row]
        for column in [each for each in cells if name in (each, each.split(b":")[0]) and cells[each][1] <= at]:
            del cells[column]

    def _hidden_to(self, table: bytes, row: bytes, column: bytes) -> int:
        names = (column, column.split(b":")[0])
        return max(self._hidden.get((table, row, name), -1) for name in names)

    def _check_and_put(self, arguments: dict[int, Any]) -> Answer:
        """The put is never below what was compared, whatever the clock says."""
        cell = self.table(arguments[1]).get(arguments[2], {}).get(arguments[3])
        self.now = max(self.now, cell[1] if cell else 0)
        return super()._check_and_put(arguments)


class GatewayCaller(Caller):
    """Calls to a gateway in memory. `fate` says of each call, by its verb: "done", "lost" (done, no answer) or "refused" (not done)."""

    def __init__(self, gateway: FakeGateway, fate: Callable[[str], str] = lambda _verb: "done") -> None:
        self.gateway = gateway
        self.fate = fate

    def call_many(self, calls: Sequence[Call[T]]) -> list[T | BackendError]:
        return [self._one(call) for call in calls]

    def _one(self, call: Call[T]) -> T | BackendError:
        fate = self.fate(call.verb.name)
        if fate == "refused":
            return BackendError("HBase's gateway is not there", retryable=True)
        frame = self.gateway.answer(call.frame(1)[4:])
        if fate == "lost":
            return BackendError(
                "HBase's gateway is silent", retryable=True, is_written=call.verb.effect is not Effect.NONE
            )
        try:
            return call.decode(frame)
        except BackendError as error:
            return error


def refuse(text: str) -> Callable[[dict[int, Any]], Answer]:
    """Return a verb that HBase refuses."""

    def verb(_arguments: dict[int, Any]) -> Answer:
        raise RefusedError(text)

    return verb


class TimedTable:
    """One table, and a caller that meets the `fates` in their order: (verb, fate), each for one call."""

    def __init__(self, name: bytes) -> None:
        self._name = name
        self.gateway = TimedGateway(name)
        self.fates: deque[tuple[str, str]] = deque()
        self.caller = GatewayCaller(self.gateway, self._fate)

    @property
    def rows(self) -> dict[bytes, dict[bytes, tuple[bytes, int]]]:
        return self.gateway.tables[self._name]

    def _fate(self, verb: str) -> str:
        if self.fates and self.fates[0][0] == verb:
            return self.fates.popleft()[1]
        return "done"
