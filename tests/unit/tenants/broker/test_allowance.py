"""One tenant's quota state: places are taken and given back once, a device's own limits come first, and a changed record is applied."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from iothub.engine.router import Subscription
from iothub.engine.state import Session, TenantPlane
from iothub.testing.clock import ManualClock
from iothub_services.auth.port import DeviceRecord, TenantRecord
from iothub_services.quota.names import Quota
from iothub_services.quota.usage import Usage, UsageStore
from iothub_services.sessions.port import SessionControl
from iothub_tenants.broker.allowance import LARGEST_PACKET, Allowance, ConnectReservation


class Recorder:
    """Remembers what was refused."""

    def __init__(self) -> None:
        self.refusals: list[Quota] = []
        self.trials: list[Quota] = []

    def refused(self, tenant_id: int, quota: Quota) -> None:
        self.refusals.append(quota)

    def would_refuse(self, tenant_id: int, quota: Quota) -> None:
        self.trials.append(quota)

    def unbalanced(self, tenant_id: int, quota: Quota) -> None:
        raise AssertionError(quota)


class Harness:
    """An allowance with all that it needs."""

    def __init__(self, path: Path) -> None:
        self.clock = ManualClock()
        self.store = UsageStore(path / "usage.db", self.clock, lambda name, text: None)
        self.usage = Usage(self.store, self.clock)
        self.plane = TenantPlane(1, "acme")
        self.recorder = Recorder()

    def allowance(self, limits: str = "", plan: str = "", **own: str) -> Allowance:
        record = TenantRecord(1, "acme", plan_limits=plan, limits=limits)
        return Allowance(record, self.plane, self.clock, self.recorder, self.usage, own)

    def session(self, client_id: str = "c", device: str = "dev1", *, is_persistent: bool = False) -> Session:
        session = Session(self.plane, client_id, device, is_persistent)
        session.control = SessionControl(5, 0, None)
        self.plane.sessions[client_id] = session
        return session


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    made = Harness(tmp_path)
    yield made
    made.store.close()


def subscribed(allowance: Allowance, session: Session, name: bytes, group: bytes | None = None) -> Quota | None:
    """Reserve a subscription and make it active; return who refused."""
    subscription = Subscription(session, name, group)
    refused = allowance.reserve_subscription(session, subscription)
    if refused is None:
        was_there = (group, name) in session.subscriptions
        session.note(subscription)
        allowance.settle_subscription(subscription, is_reserved=True, was_there=was_there)
    return refused


def test_limits_of_a_device_come_before_its_tenants_and_plans(harness: Harness) -> None:
    """Name by name."""
    allowance = harness.allowance(
        "will_bytes=20", "will_bytes=10 packet_bytes=100 topic_aliases=3", dev1="packet_bytes=200"
    )

    own, other = allowance.limits_of("dev1"), allowance.limits_of("dev2")
    assert (own.packet_bytes, own.will_bytes, own.topic_aliases) == (200, 20, 3)
    assert other is allowance.limits
    allowance.note_device(DeviceRecord("dev1", ""))
    assert allowance.limits_of("dev1") is allowance.limits
    allowance.note_device(DeviceRecord("dev2", "", limits="packet_bytes=300"))
    assert allowance.limits_of("dev2").packet_bytes == 300


def test_changed_record_reaches_the_plane_and_what_was_resolved(harness: Harness) -> None:
    """The tenant's new word holds for devices that say nothing of it."""
    allowance = harness.allowance("packet_bytes=100", dev1="will_bytes=5")
    assert (harness.plane.limits.packet_bytes, allowance.limits_of("dev1").packet_bytes) == (100, 100)
    assert harness.plane.inbound_messages is None

    allowance.apply_limits(TenantRecord(1, "acme", limits="publish_messages=5/1s"), {"dev1": "will_bytes=5"})

    assert harness.plane.limits.packet_bytes == LARGEST_PACKET
    assert harness.plane.inbound_messages is not None
    assert (allowance.limits_of("dev1").packet_bytes, allowance.limits_of("dev1").will_bytes) == (0, 5)


def test_session_that_ends_gives_everything_back(harness: Harness) -> None:
    """Its place, its subscriptions, its places in groups; the last member takes the group along."""
    allowance = harness.allowance("subscriptions=10")
    first, second = harness.session("a", is_persistent=True), harness.session("b")
    for client_id, is_persistent in (("a", True), ("b", False)):
        reservation = allowance.reserve_connect(f"new-{client_id}", has_place=False, is_persistent=is_persistent)
        assert isinstance(reservation, ConnectReservation)
        allowance.settle_connect(reservation, harness.plane.sessions[client_id])
    for session in (first, second):
        assert subscribed(allowance, session, b"t") is None
        assert subscribed(allowance, session, b"t", b"g") is None
    figures = allowance.ledger.used
    key = (b"g", b"t")
    assert [figures(Quota.SUBSCRIPTIONS), figures(Quota.SHARED_GROUPS), figures(Quota.GROUP_MEMBERS, subject=key)] == [
        4,
        1,
        2,
    ]

    allowance.release_session(first)
    assert [figures(Quota.SESSIONS), figures(Quota.SUBSCRIPTIONS), figures(Quota.SHARED_GROUPS)] == [0, 2, 1]
    allowance.release_session(second)
    assert [figures(Quota.SUBSCRIPTIONS), figures(Quota.SHARED_GROUPS), figures(Quota.GROUP_MEMBERS, subject=key)] == [
        0,
        0,
        0,
    ]


def test_refused_group_takes_no_subscription(harness: Harness) -> None:
    """All places or none."""
    allowance = harness.allowance("shared_groups=1 group_members=1")
    one, two = harness.session("a"), harness.session("b")

    assert subscribed(allowance, one, b"t", b"g") is None
    assert subscribed(allowance, two, b"t", b"g") is Quota.GROUP_MEMBERS
    assert subscribed(allowance, two, b"t", b"h") is Quota.SHARED_GROUPS
    assert allowance.ledger.used(Quota.SUBSCRIPTIONS) == 1
    assert harness.recorder.refusals == [Quota.GROUP_MEMBERS, Quota.SHARED_GROUPS]


def test_places_asked_for_twice_are_counted_once(harness: Harness) -> None:
    """Two connections of one session, one after the other, may both have reserved the same subscription; or none of them."""
    allowance = harness.allowance()
    session = harness.session()
    subscription = Subscription(session, b"t", b"g")
    for _ in range(2):
        assert allowance.reserve_subscription(session, subscription) is None

    allowance.settle_subscription(subscription, is_reserved=True, was_there=False)
    allowance.settle_subscription(subscription, is_reserved=True, was_there=True)
    assert allowance.ledger.used(Quota.SUBSCRIPTIONS) == 1
    allowance.release_subscription(subscription)
    allowance.settle_subscription(subscription, is_reserved=False, was_there=False)
    assert allowance.ledger.used(Quota.SUBSCRIPTIONS) == allowance.ledger.used(Quota.SHARED_GROUPS) == 1


def test_session_subscriptions_count_what_is_on_its_way(harness: Harness) -> None:
    """One packet cannot take more than the session may have; a trial reports, and a limit of 0 allows none."""
    allowance = harness.allowance(
        "session_subscriptions=2", dev2="session_subscriptions=0", dev3="dry-run:session_subscriptions=1"
    )
    session = harness.session()
    wanted = Subscription(session, b"t")

    assert [allowance.reserve_subscription(session, wanted, coming) for coming in (0, 1, 2)] == [
        None,
        None,
        Quota.SESSION_SUBSCRIPTIONS,
    ]
    other = harness.session("d", "dev2")
    assert allowance.reserve_subscription(other, Subscription(other, b"t")) is Quota.SESSION_SUBSCRIPTIONS
    tried = harness.session("e", "dev3")
    assert [allowance.reserve_subscription(tried, Subscription(tried, b"t"), coming) for coming in (0, 1)] == [
        None,
        None,
    ]
    assert harness.recorder.trials == [Quota.SESSION_SUBSCRIPTIONS]
    assert harness.recorder.refusals == [Quota.SESSION_SUBSCRIPTIONS] * 2


def test_restored_session_is_counted_whatever_the_limits_say(harness: Harness) -> None:
    """A start takes nothing away."""
    allowance = harness.allowance("sessions=1 subscriptions=1")
    for client_id in ("a", "b"):
        session = harness.session(client_id, is_persistent=True)
        session.note(Subscription(session, b"t"))
        session.note(Subscription(session, b"t", b"g"))
        allowance.restore_session(session)

    assert (allowance.ledger.used(Quota.SESSIONS), allowance.ledger.used(Quota.SUBSCRIPTIONS)) == (2, 4)
    assert allowance.ledger.used(Quota.SHARED_GROUPS) == 1
    assert allowance.reserve_connect("c", has_place=False, is_persistent=True) is Quota.SESSIONS
    assert allowance.ledger.used(Quota.CONNECTIONS) == 0


def test_device_gets_meters_while_its_sessions_live(harness: Harness) -> None:
    """And new ones when its limits change; most devices have none."""
    allowance = harness.allowance()
    session = harness.session()
    allowance.set_device_meters(
        session, DeviceRecord("dev1", "", limits="device_publish_messages=5/1s device_deliver_bytes=9/1s")
    )

    assert session.meters is not None
    assert session.meters.inbound_messages is not None
    assert session.meters.outbound_bytes is not None
    assert session.meters.inbound_bytes is None
    allowance.set_device_meters(session, DeviceRecord("dev1", ""))
    assert session.meters is None
    assert allowance.limits_of("dev1") is allowance.limits


def test_connection_time_follows_the_places(harness: Harness) -> None:
    """A take-over keeps its place, a CONNECT that no session is left for gives it back at once."""
    allowance = harness.allowance("sessions=0")
    allowance.reserve_connect("c", has_place=False, is_persistent=False)
    harness.clock.advance(2)
    allowance.reserve_connect("c", has_place=True, is_persistent=False)
    assert allowance.reserve_connect("d", has_place=False, is_persistent=True) is Quota.SESSIONS
    harness.clock.advance(1)
    allowance.release_connection()
    harness.clock.advance(5)

    assert allowance.connection_time.held_ms() == 3000
