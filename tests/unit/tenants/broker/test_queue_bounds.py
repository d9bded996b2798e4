"""Changed limits are applied to the existing queues: those that differ, once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

from twisted.internet.defer import Deferred

from iothub.base.errors import BackendError
from iothub_services.queues.port import QueueLimits, QueueStats
from iothub_services.quota.resolve import resolve_texts
from iothub_tenants.broker.queue_bounds import RETRY_S, SLICE, QueueBounds


@dataclass
class Queues:
    """Remembers what was set."""

    limits: dict[int, QueueLimits]
    lists: int = 0
    is_down: bool = False
    tenant: tuple[int, int, int] | None = None
    changed: dict[int, QueueLimits] = field(default_factory=dict)
    calls: list[int] = field(default_factory=list)

    async def set_tenant_limits(self, tenant_id: int, messages: int, size_bytes: int) -> None:
        self.tenant = (tenant_id, messages, size_bytes)

    async def list_queues(self, tenant_id: int) -> list[QueueStats]:
        self.lists += 1
        if self.is_down:
            raise BackendError("queues.db: disk I/O error", retryable=True)
        return [QueueStats(queue_id, tenant_id, 0, 0, 0, 0, 1, limits) for queue_id, limits in self.limits.items()]

    async def set_limits(self, changes: list[tuple[int, QueueLimits]]) -> None:
        self.calls.append(len(changes))
        self.limits.update(changes)
        self.changed.update(changes)


class Broker(SimpleNamespace):
    """Looked up by identity, as a broker is."""

    __hash__ = object.__hash__


def broker(limits: str, own: dict[str, str], sessions: dict[int, str]) -> Any:
    """A tenant with these limits and persistent sessions: queue id -> device."""

    def queue_limits(device: str) -> QueueLimits:
        found = resolve_texts(limits, "", own.get(device, ""))
        return QueueLimits(found.session_queued_messages, found.session_queued_bytes)

    made = {
        str(queue_id): SimpleNamespace(queue_id=queue_id, device=device, is_persistent=True)
        for queue_id, device in sessions.items()
    }
    made["transient"] = SimpleNamespace(queue_id=0, device="dev1", is_persistent=False)
    return Broker(
        tenant_id=7,
        record=SimpleNamespace(name="acme"),
        limits=resolve_texts(limits),
        allowance=SimpleNamespace(own=own),
        plane=SimpleNamespace(sessions=made),
        queue_limits=queue_limits,
    )


@dataclass
class Later:
    """The reactor's `callLater`, and the brokers that are there."""

    calls: list[tuple[float, Callable[[], None]]] = field(default_factory=list)
    tenants: dict[int, Any] = field(default_factory=dict)

    def __call__(self, seconds: float, call: Callable[[], None]) -> None:
        self.calls.append((seconds, call))

    def present(self, tenant_id: int) -> Any:
        return self.tenants.get(tenant_id)

    def come(self) -> None:
        """Its time has come."""
        calls, self.calls = self.calls, []
        for _, call in calls:
            call()


def bounds_of(queues: Queues, later: Later) -> QueueBounds:
    return QueueBounds(cast("Any", queues), cast("Any", later), later)


def apply_bounds(bounds: QueueBounds, tenant: Any, listed: Any = None) -> int:
    results: list[int] = []
    Deferred.fromCoroutine(bounds.apply_bounds(tenant, listed)).addCallback(results.append)
    return results[0]


def test_queues_that_differ_are_changed_and_the_tenant_is_told() -> None:
    """A device's own limit comes first; a queue of a session that ended is left alone."""
    queues = Queues({1: QueueLimits(5, 0), 2: QueueLimits(9, 0), 3: QueueLimits(9, 0), 4: QueueLimits(9, 0)})
    tenant = broker(
        "session_queued_messages=5 queued_messages=50 queued_bytes=500",
        {"dev2": "session_queued_messages=8"},
        {1: "dev1", 2: "dev1", 3: "dev2"},
    )

    assert apply_bounds(bounds_of(queues, Later()), tenant) == 2
    assert queues.changed == {2: QueueLimits(5, 0), 3: QueueLimits(8, 0)}
    assert queues.tenant == (7, 50, 500)


def test_queues_are_listed_only_when_their_limits_changed() -> None:
    """Most changes of an account have nothing to do with queues."""
    queues = Queues({1: QueueLimits(5, 0)})
    tenant, bounds = broker("session_queued_messages=5", {}, {1: "dev1"}), bounds_of(queues, Later())

    assert [apply_bounds(bounds, tenant) for _ in range(3)] == [0, 0, 0]
    assert queues.lists == 1
    tenant.allowance.own["dev1"] = "session_queued_messages=6"
    assert apply_bounds(bounds, tenant) == 1


def test_queues_of_a_tenants_next_broker_are_listed_again() -> None:
    """Its limits may have changed while it had no broker."""
    queues = Queues({1: QueueLimits(5, 0)})
    bounds = bounds_of(queues, Later())

    for _ in range(2):
        assert apply_bounds(bounds, broker("session_queued_messages=5", {}, {1: "dev1"})) == 0

    assert queues.lists == 2


def test_queues_that_have_just_been_listed_are_not_listed_again() -> None:
    """A start has looked at all of them anyway."""
    queues = Queues({1: QueueLimits(9, 0)})
    listed = [QueueStats(1, 7, 0, 0, 0, 0, 0, QueueLimits(9, 0))]

    assert apply_bounds(bounds_of(queues, Later()), broker("session_queued_messages=5", {}, {1: "dev1"}), listed) == 1
    assert (queues.lists, queues.limits) == (0, {1: QueueLimits(5, 0)})


def test_many_queues_are_changed_in_slices() -> None:
    """All of them."""
    count = SLICE * 2 + 1
    queues = Queues({number: QueueLimits(1, 0) for number in range(1, count + 1)})

    assert (
        apply_bounds(
            bounds_of(queues, Later()), broker("session_queued_messages=2", {}, dict.fromkeys(queues.limits, "dev1"))
        )
        == count
    )
    assert set(queues.limits.values()) == {QueueLimits(2, 0)}
    assert queues.calls == [SLICE, SLICE, 1]


def test_limits_that_a_failing_store_does_not_take_are_tried_until_it_does() -> None:
    """The change log names the change only once."""
    queues, later = Queues({1: QueueLimits(9, 0)}, is_down=True), Later()
    tenant = later.tenants[7] = broker("session_queued_messages=5", {}, {1: "dev1"})
    bounds = bounds_of(queues, later)
    bounds.request_update(tenant)
    bounds.request_update(tenant)
    assert [seconds for seconds, _ in later.calls] == [RETRY_S]

    later.come()
    assert (queues.changed, len(later.calls)) == ({}, 1)
    queues.is_down = False
    later.come()

    assert (queues.changed, later.calls) == ({1: QueueLimits(5, 0)}, [])


def test_limits_of_a_tenant_that_has_gone_are_not_tried_again() -> None:
    """Its stores are being emptied, or have been."""
    queues, later = Queues({1: QueueLimits(9, 0)}, is_down=True), Later()
    bounds_of(queues, later).request_update(broker("session_queued_messages=5", {}, {1: "dev1"}))
    queues.is_down = False

    later.come()

    assert queues.changed == {}
