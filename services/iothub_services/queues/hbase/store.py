"""The queue driver `hbase`: virtual queues inside HBase, kept by our coprocessor (ops/hbase).

Knows no MQTT packet and no session; encoded messages are bytes to it. Writing verbs belong to one thread, `read`, `tails`, `stats` and
`list_queues` to another one (or the same), if the caller is one for many threads.

Theory: a verb is one call of the coprocessor for each region that it concerns. There is no transaction around several: what `group` means
is in its docstring. A call whose fate is unknown is repeated so that it is done once: appends by (writer, sequence), claims and creations
by their token, all else because doing it again changes nothing.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from itertools import count as counted

from iothub.base.clock import Clock, SystemClock
from iothub.base.errors import BackendError, ConflictError
from iothub.records import keys
from iothub_services.damaged import OnDamage, uncounted
from iothub_services.hbase import calls
from iothub_services.hbase.caller import Caller
from iothub_services.hbase.tables import Tables
from iothub_services.queues.damage import DamagedQueues, no_alarm
from iothub_services.queues.hbase import requests
from iothub_services.queues.hbase.append import Appending
from iothub_services.queues.hbase.bodies import Bodies
from iothub_services.queues.hbase.expiry import Expiry
from iothub_services.queues.hbase.inbound import Inbounds
from iothub_services.queues.hbase.index import ROWS_AT_ONCE, KnownQueue, QueueIndex, all_of, unknown
from iothub_services.queues.hbase.moves import Readers, require
from iothub_services.queues.hbase.pages import Pages
from iothub_services.queues.hbase.regions import REQUEST_BYTES, Regions
from iothub_services.queues.hbase.requests import Result, StatsResult, Status, Step
from iothub_services.queues.port import (
    EARLIEST,
    Claim,
    DueRecord,
    Expired,
    ExpiryMark,
    Page,
    Purged,
    QueueLimits,
    QueueStats,
)
from iothub_services.queues.remote.store import RemoteQueues

COPROCESSOR_MISSING = (
    "put the iothub-hbase jar on the region servers' class path, or choose redis or sqlite as queues.driver"
)
FRAME_BYTES = 16 << 20
PAGE_BYTES = 8 << 20  # of bodies, but for a single one that is larger
_TOKEN_BITS = 63
_PROBE_LIMITS = QueueLimits(0, 0)


class HBaseQueues(RemoteQueues):
    """Fulfils `QueueStore`.

    Args:
        incarnation: A number of this process's life that no other process ever uses; None: a random one.
        frame_bytes: The largest call and answer; half of it is for what is not a message's body.
        on_damaged: The alarm for queues that are damaged, in the thread that finds it.
        on_damaged_record: Called with what a claim cannot finish of a publisher, in the writing thread.

    Invariants: no two calls of this store have the same sequence; what is uncertain has its token in `_tokens`.
    """

    def __init__(
        self,
        caller: Caller,
        tables: Tables,
        incarnation: int | None = None,
        clock: Clock | None = None,
        *,
        frame_bytes: int = FRAME_BYTES,
        on_damaged: Callable[[str, str], None] = no_alarm,
        on_damaged_record: OnDamage = uncounted,
    ) -> None:
        writer = _token() if incarnation is None else incarnation
        sequence = counted(1)
        self._caller = caller
        self._table = tables.queues
        self._damage = DamagedQueues(on_damaged)
        self._index = QueueIndex(caller, tables.queue_index, tables.queues)
        self._regions = Regions(caller, tables.queues, self._damage, min(REQUEST_BYTES, frame_bytes // 2))
        self._bodies = Bodies(caller, tables.bodies, writer, clock or SystemClock())
        self._pages = Pages(caller, tables.queues, self._damage, self._bodies, min(PAGE_BYTES, frame_bytes // 2))
        self._readers = Readers(self._index, self._regions, sequence)
        self._appending = Appending(self._index, self._regions, self._bodies, writer, sequence)
        self._inbounds = Inbounds(
            caller, tables.queues, self._readers, self._appending, self._bodies, on_damaged_record
        )
        super().__init__(self._index, self._readers, self._appending, self._inbounds)
        self._expiry = Expiry(self._index, self._regions)
        self._tokens: dict[tuple[str, int], int] = {}  # of creations and claims that may have been done

    def _load(self) -> None:
        self._regions.load()
        self._require_coprocessor()
        known = [self._index.add(*each) for each in self._index.listed()]
        for queue, stats in self._stats(known):
            queue.holds(stats.messages, stats.size_bytes)

    def _require_coprocessor(self) -> None:
        """Refuse to go on when regions run without the coprocessor. Raises BackendError.

        Invariant: checked before the first read. Without the coprocessor every queue seems to be missing, and the hub would end every session.
        """
        answers = self._regions.ask(requests.DUE, requests.due(0, 1, *EARLIEST))
        without = answers.count(b"")
        if without:
            fact = f"{without} of {len(answers)} regions of {self._table.decode()} answer without the queue coprocessor"
            raise BackendError(fact, retryable=False, remedy=COPROCESSOR_MISSING)

    def close(self) -> None:
        """Nothing is open: the caller belongs to whoever made it."""

    def probe(self) -> None:
        """Write something small into each region that failed. Raises BackendError: one takes no writes now."""
        self._opened()
        found = self._regions.probe_keys()
        results = require(self._regions.send_steps([requests.set_limits(key, _PROBE_LIMITS) for key in found]))
        missing = [key for key, each in zip(found, results, strict=True) if each[0] == Status.GONE]
        require(self._regions.send_steps([requests.create(key, _token(), 1, _PROBE_LIMITS) for key in missing]))

    # --- the reader

    def claim(self, queue_id: int, owner: bytes) -> Claim:
        known = self._existing(queue_id)
        _, answer = self._with_token("claim", known, lambda token: requests.claim(known.key, token, owner))
        claimed = requests.claimed(answer)
        known.holds(claimed.messages, claimed.size_bytes)
        inbound = [packet_id for packet_id, is_routed, _ in claimed.inbound if is_routed]
        intents = [(packet_id, kept) for packet_id, is_routed, kept in claimed.inbound if not is_routed]
        if intents:
            inbound += self._inbounds.finish(known, claimed.epoch, intents)
        stands = (claimed.epoch, claimed.head, claimed.tail, claimed.reserved)
        return Claim(*stands, claimed.released, tuple(sorted(inbound)))

    def read(self, queue_id: int, epoch: int, after: int, count: int, size_bytes: int) -> Page:
        return self._pages.read(self._existing(queue_id), epoch, after, count, size_bytes)

    # --- owners and operators

    def create(self, tenant_id: int, queue_id: int, limits: QueueLimits, first_epoch: int = 1) -> None:
        self._opened()
        if queue_id in self._created_before:
            return
        if self._index.get(queue_id) is not None:
            raise ConflictError(f"queue {queue_id} exists already")
        self._index.enter(tenant_id, queue_id)
        known = KnownQueue(queue_id, tenant_id, self._index.tenant(tenant_id))
        status, _ = self._with_token(
            "create", known, lambda token: requests.create(known.key, token, first_epoch, limits)
        )
        self._index.add(tenant_id, queue_id)
        if status == Status.EXISTS:
            raise ConflictError(f"queue {queue_id} exists already")
        self._created.add(queue_id)

    def set_limits(self, changes: list[tuple[int, QueueLimits]]) -> None:
        self._opened()
        wanted = dict(changes)
        self._index.find(wanted)
        known = [queue for queue_id in wanted if (queue := self._index.get(queue_id)) is not None]
        outcomes = self._regions.send_steps([requests.set_limits(queue.key, wanted[queue.queue_id]) for queue in known])
        for queue, (status, _) in zip(known, require(outcomes), strict=True):
            if status == Status.GONE:
                self._index.forget(queue.queue_id)

    def tails(self, queue_ids: list[int]) -> dict[int, int]:
        return {queue.queue_id: stats.tail for queue, stats in self._found(queue_ids)}

    def existing(self, queue_ids: Sequence[int]) -> set[int]:
        return {queue.queue_id for queue, _ in self._found(queue_ids)}

    def stats(self, queue_id: int) -> QueueStats:
        known = self._existing(queue_id)
        for queue, stats in self._stats([known]):
            return _shown(queue, stats)
        raise unknown(queue_id)

    def stats_of(self, queue_ids: Sequence[int]) -> dict[int, QueueStats]:
        return {queue.queue_id: _shown(queue, stats) for queue, stats in self._found(queue_ids)}

    def list_queues(self, tenant_id: int) -> list[QueueStats]:
        self._opened()
        known = [self._index.add(*each) for each in self._index.listed(tenant_id)]
        return [_shown(queue, stats) for queue, stats in self._stats(known)]

    def purge(self, queue_id: int, upto: int = 0) -> Purged:
        """All at once, whatever `upto`: the coprocessor does it beside the appends."""
        known = self._existing(queue_id)
        _, answer = self._one(known, requests.purge(known.key))
        known.holds(0, 0)
        return Purged(requests.number(answer))

    def drop(self, queue_id: int) -> int:
        self._opened()
        self._index.find((queue_id,))
        known = self._index.get(queue_id)
        return 0 if known is None else self._drop([known])[1]

    def drop_tenant(self, tenant_id: int) -> int:
        self._opened()
        return self._drop([self._index.add(*each) for each in self._index.listed(tenant_id)])[0]

    def expire(self, now_ms: int, count: int, after: ExpiryMark = EARLIEST) -> Expired:
        self._opened()
        expired, changed = self._expiry.expire(now_ms, count, after)
        self._refresh(changed)
        return expired

    def expire_unsent(self, now_ms: int, records: Sequence[DueRecord]) -> tuple[DueRecord, ...]:
        self._opened()
        removed, changed = self._expiry.expire_unsent(now_ms, records)
        self._refresh(changed)
        return removed

    # --- inside

    def _existing(self, queue_id: int) -> KnownQueue:
        self._opened()
        return self._index.existing(queue_id)

    def _one(self, known: KnownQueue, step: Step) -> Result:
        """Do one operation on a queue that must be there. Raises NotFoundError, BackendError."""
        (result,) = require(self._regions.send_steps((step,)))
        if result[0] == Status.GONE:
            self._index.forget(known.queue_id)
            raise unknown(known.queue_id)
        return result

    def _with_token(self, verb: str, known: KnownQueue, step: Callable[[int], Step]) -> Result:
        """Do an operation that its token distinguishes from others, which is kept until it is answered."""
        key = (verb, known.queue_id)
        result = self._one(known, step(self._tokens.setdefault(key, _token())))
        del self._tokens[key]
        return result

    def _drop(self, known: Sequence[KnownQueue]) -> tuple[int, int]:
        """Return how many queues were there, and how many records they had."""
        results = require(self._regions.send_steps([requests.drop(queue.key) for queue in known]))
        self._index.remove_names((queue.tenant_id, queue.queue_id) for queue in known)
        for queue in known:
            self._index.forget(queue.queue_id)
            self._created_before.discard(queue.queue_id)
        return sum(status == Status.DONE for status, _ in results), sum(
            requests.number(octets) for _, octets in results
        )

    def _found(self, queue_ids: Sequence[int]) -> list[tuple[KnownQueue, StatsResult]]:
        """Return where those of these queues stand that are there."""
        self._opened()
        self._index.find(queue_ids)
        return self._stats([queue for queue_id in queue_ids if (queue := self._index.get(queue_id)) is not None])

    def _stats(self, known: Sequence[KnownQueue]) -> list[tuple[KnownQueue, StatsResult]]:
        """Return where queues stand, ascending by id, without those that are gone or damaged."""
        found = []
        for queue, answer in self._answers(known):
            if isinstance(answer, StatsResult):
                found.append((queue, answer))
            else:
                self._damage.found(queue.queue_id, requests.damage(answer[1]))
        return found

    def _answers(self, known: Sequence[KnownQueue]) -> list[tuple[KnownQueue, StatsResult | Result]]:
        """Return what the coprocessor answers about queues, without those that are gone."""
        queues = {keys.meta_row(queue.key): queue for queue in known}
        rows = list(queues)
        parts = [rows[at : at + ROWS_AT_ONCE] for at in range(0, len(rows), ROWS_AT_ONCE)]
        gets = [calls.get_rows(self._table, part, (requests.STATS,)) for part in parts]
        found = [
            (queues[row.key], requests.stats(row.cells[requests.STATS].value))
            for part in all_of(self._caller.call_many(gets))
            for row in part
        ]
        return sorted(found, key=lambda each: each[0].queue_id)

    def _refresh(self, changed: Sequence[KnownQueue]) -> None:
        for queue, stats in self._stats(changed):
            queue.holds(stats.messages, stats.size_bytes)


def _token() -> int:
    """Return what nobody else has; 0 means none."""
    return secrets.randbits(_TOKEN_BITS) or 1


def _shown(known: KnownQueue, stats: StatsResult) -> QueueStats:
    held = (stats.messages, stats.size_bytes, stats.head, stats.tail, stats.epoch)
    return QueueStats(known.queue_id, known.tenant_id, *held, stats.limits)
