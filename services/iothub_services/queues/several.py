"""Several queue drivers as one: each queue is with one of them, for its whole life.

Knows drivers by name, and no settings: who creates a queue names its driver. All methods block; threads as the drivers want them.

Theory: a queue is where it was created, and its driver's own list of queues says so; nothing else is written down that could contradict it.
What is known is kept in memory, from the lists that a start reads; a queue that is not known is looked for. A message for queues of several
drivers is as many appends, in one group. The driver that commits at the end of a group (SQLite) commits when the others have done theirs,
and these do not do again what they have done when the group is repeated with the same objects: so an append is done once, whatever fails
while the hub lives. When the hub dies between the two, nobody was answered yet, and the publisher's repeat comes with a message id of its
own: at QoS 2, too, some queues may then get it twice, but none goes without. For that the publisher's own queue, which remembers the Packet
Identifier, is asked first where its memory is committed with the group. Where it is durable at once it is asked last, and what the group has
done until then is committed before: else it would remember a message that a crash takes from the others. Of a message for a queue that cannot
be read it remembers nothing: the message id is kept here, and repeats get the same one while the hub lives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from operator import add
from typing import TypeVar, cast

from iothub.base.errors import CorruptRecordError, NotFoundError
from iothub_services.queues.port import (
    EARLIEST,
    Append,
    Appended,
    Claim,
    Delivery,
    DueRecord,
    Expired,
    ExpiryMark,
    Move,
    MoveKind,
    Page,
    QueueLimits,
    QueueStats,
    QueueStore,
    Refused,
    TenantUsage,
    UnreadableQueueError,
    in_order,
)
from iothub_services.queues.rebuilding import Place, RebuildingStore, Rebuilt

T = TypeVar("T")
K = TypeVar("K")

MOST = 4_000  # appends of failed groups that are remembered: twice what one group has
MOST_BYTES = 64 << 20  # of their bodies

_GONE = int(Refused.GONE)


@dataclass(slots=True)
class _Part:
    """A message, and what each driver gets of it. `committed`: what a driver was told that has committed while the group went on."""

    op: Append
    by_driver: dict[str, Append]
    committed: dict[int, Appended] = field(default_factory=dict)  # by the part's identity


class SeveralQueues:
    """Fulfils `QueueStore`.

    Args:
        drivers: By name. One that commits at the end of a group comes last (!): its commit is then the first of all ends.
        chosen: The driver of queues that are created without naming one.
        committing: The name of the one that commits at the end of a group; the others' verbs are durable when they return.

    Invariants: `_homes` names the driver of every queue that was created, listed or found here. `_parts` holds the appends of
    groups that have not ended well, as many as may come again: a repeat hands the same ones to the drivers.
    """

    def __init__(self, drivers: Mapping[str, QueueStore], chosen: str, committing: str = "sqlite") -> None:
        self._drivers = dict(drivers)
        self._chosen = chosen
        self._committing = committing
        self._homes: dict[int, str] = {}
        self._parts: dict[int, _Part] = {}  # by the whole's identity, oldest first
        self._unfinished: dict[tuple[int, int], bytes] = {}  # (publisher's queue, Packet Identifier) -> message id
        self._running: list[int] = []  # of the group that runs
        self._told: dict[int, Appended] = {}  # by the driver that commits at the end, in the group that runs
        self._commit: AbstractContextManager[None] | None = None  # its group, while one runs
        self._made: set[int] = set()  # queues that it made in the group that runs
        self._made_before: set[int] = set()  # and has committed; the group may come again

    # --- where a queue is

    def home(self, queue_id: int) -> str | None:
        """Return the name of a queue's driver, None when no driver has it. Raises BackendError."""
        if queue_id not in self._homes:
            self._find([queue_id])
        return self._homes.get(queue_id)

    def _find_unknown(self, queue_ids: list[int]) -> None:
        """Look for those that nobody has looked for, all at once. Raises BackendError."""
        unknown = [queue_id for queue_id in queue_ids if queue_id not in self._homes]
        if unknown:
            self._find(unknown)

    def _find(self, queue_ids: list[int]) -> None:
        """Look for queues in all drivers. Raises BackendError: one does not answer."""
        for name, driver in self._drivers.items():
            for queue_id in driver.tails(queue_ids):
                self._homes[queue_id] = name
        for queue_id in queue_ids:
            if queue_id not in self._homes:  # one that cannot be read has no tail: it must not count as gone
                self._homes.update((queue_id, name) for name, each in self._drivers.items() if _has(each, queue_id))

    def _of(self, queue_id: int) -> QueueStore:
        """Return a queue's driver. Raises NotFoundError."""
        home = self.home(queue_id)
        if home is None:
            raise NotFoundError(f"there is no queue {queue_id}")
        return self._drivers[home]

    def _apart(self, items: Iterable[T], queue_id_of: Callable[[T], int]) -> dict[str, list[T]]:
        """Sort by driver; what belongs to none is left out."""
        apart: dict[str, list[T]] = {}
        for item in items:
            home = self.home(queue_id_of(item))
            if home is not None:
                apart.setdefault(home, []).append(item)
        return apart

    # --- all of them

    @contextmanager
    def group(self) -> Iterator[None]:
        with ExitStack() as stack:
            for name, driver in self._drivers.items():
                if name != self._committing:
                    stack.enter_context(driver.group())
            stack.enter_context(self._committing_group())
            self._running.clear()
            yield
        self._made_before.clear()
        for each in self._running:
            self._parts.pop(each, None)

    @contextmanager
    def _committing_group(self) -> Iterator[None]:
        """Hold the group of the driver that commits at the end; `_commit_now` may change it for another one."""
        self._begin()
        try:
            yield
        except BaseException as error:
            if self._commit is not None:
                self._commit.__exit__(type(error), error, error.__traceback__)
            raise
        else:
            if self._commit is not None:
                self._commit.__exit__(None, None, None)
        finally:
            self._commit = None

    def _begin(self) -> None:
        driver = self._drivers.get(self._committing)
        commit = nullcontext() if driver is None else driver.group()
        commit.__enter__()
        self._commit = commit
        self._told.clear()
        self._made.clear()

    def _commit_now(self) -> None:
        """Make durable what the group has done so far; when it comes again, that is not done twice. Raises BackendError."""
        commit, self._commit = self._commit, None
        if commit is None:
            return  # no group runs: every verb is durable when it returns
        commit.__exit__(None, None, None)
        for each in self._running:
            part = self._parts[each]
            mine = part.by_driver.get(self._committing)
            if mine is not None and id(mine) in self._told:
                part.committed[id(mine)] = self._told[id(mine)]
        self._made_before |= self._made
        self._begin()

    def probe(self) -> None:
        """Raises BackendError: one of them takes no writes now."""
        for driver in self._drivers.values():
            probe = getattr(driver, "probe", None)
            if probe is not None:
                probe()

    def idle(self) -> bool:
        """Do a slice of idle work; whether there is more."""
        is_more = False
        for driver in self._drivers.values():
            idle = getattr(driver, "idle", None)
            if idle is not None:
                is_more |= idle()
        return is_more

    def close(self) -> None:
        for driver in self._drivers.values():
            driver.close()

    @property
    def needs_rebuild(self) -> bool:
        """Whether a driver may have lost queues with a damaged page."""
        return bool(self._damaged())

    def rebuild(self, places: Sequence[Place], now_us: int) -> Rebuilt:
        """Have lost queues made anew by the damaged driver; those that another one has are not lost."""
        rebuilt = Rebuilt()
        for name, driver in self._damaged().items():
            others = [other for other in self._drivers if other != name]
            ids = [place.queue_id for place in places]
            elsewhere = {queue_id for other in others for queue_id in self._drivers[other].tails(ids)}
            lost = [place for place in places if place.queue_id not in elsewhere]
            rebuilt = Rebuilt(*map(add, rebuilt, driver.rebuild(lost, now_us)))
        return rebuilt

    def _damaged(self) -> dict[str, RebuildingStore]:
        return {
            name: cast("RebuildingStore", driver)
            for name, driver in self._drivers.items()
            if getattr(driver, "needs_rebuild", False)
        }

    def set_tenant_limits(self, tenant_id: int, messages: int, size_bytes: int) -> None:
        """Each driver holds its own queues to the bounds; the sum over all may exceed them."""
        for driver in self._drivers.values():
            driver.set_tenant_limits(tenant_id, messages, size_bytes)

    def set_limits(self, changes: list[tuple[int, QueueLimits]]) -> None:
        self._find_unknown([queue_id for queue_id, _ in changes])
        for name, mine in self._apart(changes, lambda change: change[0]).items():
            self._drivers[name].set_limits(mine)

    def tenant_usage(self, tenant_id: int) -> TenantUsage:
        usages = [driver.tenant_usage(tenant_id) for driver in self._drivers.values()]
        return TenantUsage(sum(usage.messages for usage in usages), sum(usage.bytes for usage in usages))

    def list_queues(self, tenant_id: int) -> list[QueueStats]:
        """What several drivers cannot read, because they share its index, is listed once."""
        found: dict[int, QueueStats] = {}
        for name, driver in self._drivers.items():
            for stats in driver.list_queues(tenant_id):
                if not stats.unreadable or stats.queue_id not in found:
                    found[stats.queue_id] = stats
                    self._homes[stats.queue_id] = name
        return in_order(found.values())

    def drop_tenant(self, tenant_id: int) -> int:
        return sum(driver.drop_tenant(tenant_id) for driver in self._drivers.values())

    def expire(self, now_ms: int, count: int, after: ExpiryMark = EARLIEST) -> Expired:
        """Each driver looks at `count` records; where one has not come to its end, the next look begins at the earliest mark."""
        found = [driver.expire(now_ms, count, after) for driver in self._drivers.values()]
        marks = [each.after for each in found if each.after is not None]
        removed = sorted([record for each in found for record in each.removed], key=_place)
        spared = sorted([record for each in found for record in each.spared], key=_place)
        return Expired(tuple(removed), tuple(spared), min(marks, default=None))

    def expire_unsent(self, now_ms: int, records: Sequence[DueRecord]) -> tuple[DueRecord, ...]:
        apart = self._apart(records, lambda record: record.queue_id)
        removed = [self._drivers[name].expire_unsent(now_ms, due) for name, due in apart.items()]
        return tuple(record for each in removed for record in each)

    # --- one queue

    def create(self, tenant_id: int, queue_id: int, limits: QueueLimits, first_epoch: int = 1) -> None:
        self.create_with(self._chosen, tenant_id, queue_id, limits, first_epoch)

    def create_with(
        self, driver: str, tenant_id: int, queue_id: int, limits: QueueLimits, first_epoch: int = 1
    ) -> None:
        """Create a queue with one of the drivers, by its name."""
        if queue_id in self._made_before:
            return
        self._drivers[driver].create(tenant_id, queue_id, limits, first_epoch)
        self._homes[queue_id] = driver
        if driver == self._committing:
            self._made.add(queue_id)

    def claim(self, queue_id: int, owner: bytes) -> Claim:
        return self._of(queue_id).claim(queue_id, owner)

    def read(self, queue_id: int, epoch: int, after: int, count: int, size_bytes: int) -> Page:
        return self._of(queue_id).read(queue_id, epoch, after, count, size_bytes)

    def stats(self, queue_id: int) -> QueueStats:
        return self._of(queue_id).stats(queue_id)

    def purge(self, queue_id: int) -> int:
        return self._of(queue_id).purge(queue_id)

    def drop(self, queue_id: int) -> int:
        home = self.home(queue_id)
        if home is None:
            return 0
        count = self._drivers[home].drop(queue_id)
        self._homes.pop(queue_id, None)
        return count

    def tails(self, queue_ids: list[int]) -> dict[int, int]:
        self._find_unknown(queue_ids)
        apart = self._apart(queue_ids, lambda queue_id: queue_id)
        return {
            queue_id: tail for name, ids in apart.items() for queue_id, tail in self._drivers[name].tails(ids).items()
        }

    def apply(self, moves: list[Move]) -> list[bool]:
        for move in moves:
            if move.kind == MoveKind.FINISH_INBOUND:
                self._unfinished.pop((move.queue_id, move.value), None)
        apart = self._apart(moves, lambda move: move.queue_id)
        done = {name: iter(self._drivers[name].apply(each)) for name, each in apart.items()}
        return [home is not None and next(done[home]) for home in (self.home(move.queue_id) for move in moves)]

    # --- appends

    def append(self, batch: list[Append]) -> list[Appended]:
        kept = [self._apart_of(op) for op in batch]
        parts = [each.by_driver for each in kept]
        self._forget_given_up()
        answers: dict[int, Appended] = {}  # by the part's identity
        for each in kept:
            answers |= each.committed
        for name in self._order(parts):
            mine = [part[name] for part in parts if name in part and not self._is_refused(part, answers)]
            mine = [each for each in mine if id(each) not in answers]
            if self._remembers_at_once(name, parts):
                self._commit_now()
            told = self._drivers[name].append(mine) if mine else []
            self._require_whole(parts, mine, told)
            new = {id(each): answer for each, answer in zip(mine, told, strict=True)}
            answers |= new
            if name == self._committing and self._commit is not None:
                self._told |= new
        merged = [self._merged(op, part, answers) for op, part in zip(batch, parts, strict=True)]
        for op, answer in zip(batch, merged, strict=True) if self._unfinished else ():
            if op.inbound is not None and not answer.is_stale:
                self._unfinished.pop((op.inbound.queue_id, op.inbound.packet_id), None)
        return merged

    def _require_whole(
        self, parts: Sequence[Mapping[str, Append]], mine: Sequence[Append], told: Sequence[Appended]
    ) -> None:
        """An intent closes in its own driver, which does not know whether a queue of another one could be read. Raises UnreadableQueueError.

        What its publisher repeats is for those without it: it gets the same message id.
        """
        unread = {id(each): answer.unreadable for each, answer in zip(mine, told, strict=True) if answer.unreadable}
        for part in parts if unread else ():
            inbound = next((op.inbound for op in part.values() if op.inbound is not None), None)
            for each in part.values() if len(part) > 1 and inbound is not None else ():
                for queue_id, found in unread.get(id(each), ()):
                    if inbound is not None:
                        self._unfinished[inbound.queue_id, inbound.packet_id] = each.message_id
                    if len(self._unfinished) > MOST:
                        del self._unfinished[next(iter(self._unfinished))]
                    raise UnreadableQueueError(queue_id, found.why, found.position, is_written=True)

    def _remembers_at_once(self, name: str, parts: Sequence[Mapping[str, Append]]) -> bool:
        """Has a driver publishers' own queues, of messages that the one that commits later has a part of?"""
        committing = self._committing
        return name != committing and any(
            name in part and part[name].inbound is not None and committing in part for part in parts
        )

    def _forget_given_up(self) -> None:
        """What comes again comes soon: of the groups that failed before, only so much is remembered."""
        running = set(self._running)
        before = [each for each in self._parts if each not in running]
        surplus_bytes = sum([len(self._parts[each].op.body) for each in before]) - MOST_BYTES
        for each in before:
            if len(self._parts) <= MOST and surplus_bytes <= 0:
                break
            surplus_bytes -= len(self._parts.pop(each).op.body)

    def _is_refused(self, part: Mapping[str, Append], answers: Mapping[int, Appended]) -> bool:
        """Has the publisher's own queue said that there is nothing to do?"""
        own = next((answers.get(id(op)) for op in part.values() if op.inbound is not None), None)
        return own is not None and (own.is_duplicate or own.is_stale)

    def _apart_of(self, op: Append) -> _Part:
        """Return what each driver gets of a message; the same objects when a group is repeated."""
        self._running.append(id(op))
        kept = self._parts.get(id(op))
        if kept is not None:
            return kept
        whole, op = op, self._as_before(op)
        deliveries = self._apart(op.deliveries, lambda delivery: delivery.queue_id)
        own = None if op.inbound is None else self.home(op.inbound.queue_id) or self._chosen
        if own is not None:
            deliveries.setdefault(own, [])
        if len(deliveries) == 1 and sum(map(len, deliveries.values())) == len(op.deliveries):
            parts = dict.fromkeys(deliveries, op)
        else:
            parts = {
                name: replace(op, deliveries=tuple(each), inbound=op.inbound if name == own else None)
                for name, each in deliveries.items()
            }
        made = self._parts[id(whole)] = _Part(whole, parts)
        return made

    def _as_before(self, op: Append) -> Append:
        """Return a message as some queues have it already, if its publisher repeats it."""
        if not self._unfinished or op.inbound is None:
            return op
        message_id = self._unfinished.get((op.inbound.queue_id, op.inbound.packet_id), op.message_id)
        return op if message_id == op.message_id else replace(op, message_id=message_id)

    def _order(self, parts: Sequence[Mapping[str, Append]]) -> list[str]:
        """Return the drivers that get something, in the order in which they are asked (see above)."""
        owning = {name for part in parts for name, op in part.items() if op.inbound is not None and len(part) > 1}
        used = [name for name in self._drivers if any(name in part for part in parts)]
        return sorted(used, key=lambda name: 0 if name == self._committing else 2 if name in owning else 1)

    def _merged(self, op: Append, parts: Mapping[str, Append], answers: Mapping[int, Appended]) -> Appended:
        told = {name: answers[id(part)] for name, part in parts.items() if id(part) in answers}
        if len(parts) == 1 and next(iter(parts.values())) is op:
            return next(iter(told.values()))
        refused = next((each for each in told.values() if each.is_duplicate or each.is_stale), None)
        if refused is not None:
            return refused
        positions = {name: iter(each.positions) for name, each in told.items()}

        def position(delivery: Delivery) -> int:
            home = self._homes.get(delivery.queue_id)
            return _GONE if home not in positions else next(positions[home])

        dropped = tuple(each for answer in told.values() for each in answer.dropped)
        hit = tuple(each for answer in told.values() for each in answer.hit)
        unreadable = tuple(each for answer in told.values() for each in answer.unreadable)
        is_noted = all(each.is_noted for each in told.values())
        found = tuple(map(position, op.deliveries))
        return Appended(found, is_noted=is_noted, dropped=dropped, hit=hit, unreadable=unreadable)


def _has(driver: QueueStore, queue_id: int) -> bool:
    try:
        driver.stats(queue_id)
    except NotFoundError:
        return False
    except CorruptRecordError:
        pass
    return True


def _place(record: DueRecord) -> tuple[int, int]:
    return record.queue_id, record.position
