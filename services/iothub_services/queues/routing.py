"""Several queue drivers as one store: all queues of a tenant are with one driver.

Knows drivers by name, and no settings: whoever knows a tenant says which driver the settings choose for it. All methods but `choose` block.

Theory: a message is for queues of one tenant, so it goes whole to one driver, with one commit; nothing is promised about the order between
drivers. A tenant's driver is the one that has its queues; the settings count for a tenant that has none. The drivers' own lists say where
queues are, and nothing else is written down that could contradict them: what is known is kept in memory, from the lists that a start reads,
and a queue that another hub has made is looked for.

A group holds messages of many tenants. The driver that commits at the end of a group (SQLite) ends its group first: if that fails, the group
is repeated with the same objects, and the others, whose verbs are durable when they return, do not do again what they have done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from operator import add, attrgetter
from typing import TypeVar, cast

from iothub.base import log as logging
from iothub.base.errors import BackendError, NotFoundError
from iothub_services.queues.port import (
    EARLIEST,
    Append,
    Appended,
    Claim,
    DueRecord,
    Expired,
    ExpiryMark,
    Move,
    Page,
    Place,
    Purged,
    QueueLimits,
    QueueStats,
    QueueStore,
    RebuildingStore,
    Rebuilt,
    TenantUsage,
)

log = logging.get(__name__)

T = TypeVar("T")


class RoutingStore:
    """Fulfils `QueueStore`.

    Args:
        drivers: By name. The one that commits at the end of a group comes last, so that its group ends first.
        default: The driver of a tenant for which no other one was chosen.

    Invariant: `_homes` names the driver of every queue that was created, listed or found here, `_tenants` that of every tenant with a queue.
    """

    def __init__(self, drivers: Mapping[str, QueueStore], default: str) -> None:
        self._drivers = dict(drivers)
        self._default = default
        self._homes: dict[int, str] = {}
        self._tenants: dict[int, str] = {}

    def choose(self, tenant_id: int, driver: str) -> None:
        """Use this driver for a tenant unless it has queues with another one; any thread may call it."""
        present = self._tenants.setdefault(tenant_id, driver)
        if present != driver:
            log.warning(
                "the tenant's queues stay with the driver that has them",
                tenant=tenant_id,
                driver=present,
                chosen=driver,
            )

    # --- where a queue is

    def home(self, queue_id: int) -> str | None:
        """Return the name of a queue's driver, None when no driver has it. Raises BackendError."""
        if queue_id not in self._homes:
            self._find_unknown((queue_id,))
        return self._homes.get(queue_id)

    def known_home(self, queue_id: int) -> str | None:
        """Return the name of a queue's driver, None when it is not in memory. Asks no driver: for the reactor thread."""
        return self._homes.get(queue_id)

    def _find_unknown(self, queue_ids: Iterable[int]) -> None:
        """Look in all drivers for the queues that are not known yet, all at once. Raises BackendError: one does not answer."""
        unknown = [queue_id for queue_id in queue_ids if queue_id not in self._homes]
        if not unknown:
            return
        for name, driver in self._drivers.items():
            self._homes.update(dict.fromkeys(driver.existing(unknown), name))

    def _of(self, queue_id: int) -> QueueStore:
        """Return a queue's driver. Raises NotFoundError."""
        home = self.home(queue_id)
        if home is None:
            raise NotFoundError(f"there is no queue {queue_id}")
        return self._drivers[home]

    def _by_driver(self, items: Sequence[T], queue_id_of: Callable[[T], int]) -> dict[str, list[T]]:
        """Sort by driver; what belongs to none is left out. Raises BackendError: one does not answer."""
        self._find_unknown(map(queue_id_of, items))
        found: dict[str, list[T]] = {}
        for item in items:
            home = self._homes.get(queue_id_of(item))
            if home is not None:
                found.setdefault(home, []).append(item)
        return found

    def _homes_of(self, queue_ids: Sequence[int]) -> Iterable[tuple[str, list[int]]]:
        """Return which of these queues are with which driver."""
        return self._by_driver(queue_ids, lambda queue_id: queue_id).items()

    # --- all of them

    @contextmanager
    def group(self) -> Iterator[None]:
        with ExitStack() as stack:
            for driver in self._drivers.values():
                stack.enter_context(driver.group())
            yield

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
            elsewhere = {queue_id for other in others for queue_id in self._drivers[other].existing(ids)}
            lost = [place for place in places if place.queue_id not in elsewhere]
            rebuilt = Rebuilt(*map(add, rebuilt, driver.rebuild(lost, now_us)))
        return rebuilt

    def _damaged(self) -> dict[str, RebuildingStore]:
        return {
            name: cast("RebuildingStore", driver)
            for name, driver in self._drivers.items()
            if getattr(driver, "needs_rebuild", False)
        }

    # --- tenants

    def create(self, tenant_id: int, queue_id: int, limits: QueueLimits, first_epoch: int = 1) -> None:
        name = self._tenants.setdefault(tenant_id, self._default)
        self._drivers[name].create(tenant_id, queue_id, limits, first_epoch)
        self._homes[queue_id] = name

    def list_queues(self, tenant_id: int) -> list[QueueStats]:
        listed = {name: driver.list_queues(tenant_id) for name, driver in self._drivers.items()}
        for name, queues in listed.items():
            self._homes.update((stats.queue_id, name) for stats in queues)
        having = [name for name, queues in listed.items() if queues]
        if having and self._tenants.get(tenant_id) not in having:
            self._tenants[tenant_id] = having[0]
        return sorted((stats for queues in listed.values() for stats in queues), key=attrgetter("queue_id"))

    def drop_tenant(self, tenant_id: int) -> int:
        self._tenants.pop(tenant_id, None)
        return sum(driver.drop_tenant(tenant_id) for driver in self._drivers.values())

    def set_tenant_limits(self, tenant_id: int, messages: int, size_bytes: int) -> None:
        for driver in self._drivers.values():
            driver.set_tenant_limits(tenant_id, messages, size_bytes)

    def tenant_usage(self, tenant_id: int) -> TenantUsage:
        usages = [driver.tenant_usage(tenant_id) for driver in self._drivers.values()]
        return TenantUsage(sum(usage.messages for usage in usages), sum(usage.bytes for usage in usages))

    def expire(self, now_ms: int, count: int, after: ExpiryMark = EARLIEST) -> Expired:
        """Each driver looks at `count` records; where one has not come to its end, the next look begins at the earliest mark."""
        found = [driver.expire(now_ms, count, after) for driver in self._drivers.values()]
        marks = [each.after for each in found if each.after is not None]
        removed = sorted([record for each in found for record in each.removed], key=_place)
        spared = sorted([record for each in found for record in each.spared], key=_place)
        return Expired(tuple(removed), tuple(spared), min(marks, default=None))

    def expire_unsent(self, now_ms: int, records: Sequence[DueRecord]) -> tuple[DueRecord, ...]:
        due = self._by_driver(records, lambda record: record.queue_id)
        removed = [self._drivers[name].expire_unsent(now_ms, mine) for name, mine in due.items()]
        return tuple(record for each in removed for record in each)

    # --- queues

    def claim(self, queue_id: int, owner: bytes) -> Claim:
        return self._of(queue_id).claim(queue_id, owner)

    def read(self, queue_id: int, epoch: int, after: int, count: int, size_bytes: int) -> Page:
        return self._of(queue_id).read(queue_id, epoch, after, count, size_bytes)

    def stats(self, queue_id: int) -> QueueStats:
        return self._of(queue_id).stats(queue_id)

    def stats_of(self, queue_ids: Sequence[int]) -> dict[int, QueueStats]:
        return dict(
            each for name, ids in self._homes_of(queue_ids) for each in self._drivers[name].stats_of(ids).items()
        )

    def purge(self, queue_id: int, upto: int = 0) -> Purged:
        return self._of(queue_id).purge(queue_id, upto)

    def drop(self, queue_id: int) -> int:
        home = self.home(queue_id)
        drivers = (
            self._drivers.values() if home is None else [self._drivers[home]]
        )  # a damaged one is unknown, but there
        count = sum(driver.drop(queue_id) for driver in drivers)
        self._homes.pop(queue_id, None)
        return count

    def set_limits(self, changes: list[tuple[int, QueueLimits]]) -> None:
        for name, mine in self._by_driver(changes, lambda change: change[0]).items():
            self._drivers[name].set_limits(mine)

    def existing(self, queue_ids: Sequence[int]) -> set[int]:
        return {queue_id for name, ids in self._homes_of(queue_ids) for queue_id in self._drivers[name].existing(ids)}

    def tails(self, queue_ids: list[int]) -> dict[int, int]:
        return dict(each for name, ids in self._homes_of(queue_ids) for each in self._drivers[name].tails(ids).items())

    def apply(self, moves: list[Move]) -> list[bool]:
        self._find_unknown(move.queue_id for move in moves)
        homes = [self._homes.get(move.queue_id) for move in moves]  # once: the reading thread adds to them
        done = {
            name: iter(driver.apply([move for move, home in zip(moves, homes, strict=True) if home == name]))
            for name, driver in self._drivers.items()
            if name in homes
        }
        return [home is not None and next(done[home]) for home in homes]

    def append(self, batch: list[Append]) -> list[Appended]:
        names = [self._driver_of(op) for op in batch]
        answers = {
            name: iter(driver.append([op for op, its in zip(batch, names, strict=True) if its == name]))
            for name, driver in self._drivers.items()
            if name in names
        }
        return [next(answers[name]) for name in names]

    def _driver_of(self, op: Append) -> str:
        """Return the one driver that gets a message; the default one says of queues that nobody has that they are gone.

        Raises:
            BackendError: Its queues are in several drivers, since hubs with different settings have made them.
        """
        ids = [delivery.queue_id for delivery in op.deliveries]
        if op.inbound is not None:
            ids.append(op.inbound.queue_id)
        self._find_unknown(ids)
        homes = {self._homes[queue_id]: queue_id for queue_id in ids if queue_id in self._homes}
        if len(homes) > 1:
            places = ", ".join(f"queue {queue_id} is with {name}" for name, queue_id in homes.items())
            raise BackendError(
                f"queues of one tenant are in several drivers: {places}",
                retryable=False,
                remedy="give every hub the same queues.driver and queues.choices, and discard the sessions of one of the drivers",
            )
        return next(iter(homes), self._default)


def _place(record: DueRecord) -> tuple[int, int]:
    return record.queue_id, record.position
