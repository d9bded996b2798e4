"""Sessions of other hubs are packed while nothing of them is under way here, and wake when they are needed."""

from __future__ import annotations

from typing import Any

import pytest

from iothub.engine.router import Subscription
from iothub.engine.state import Place, Session, TenantPlane
from iothub.engine.window import Window
from iothub_services.sessions.packing import pack, pack_woken, subscriptions_of
from iothub_services.sessions.port import ENDED, HERE, SessionControl, Will

EPOCH = 9 << 24


@pytest.fixture
def plane() -> TenantPlane:
    return TenantPlane(1, "acme")


def begin(plane: TenantPlane, client_id: str = "c", *filters: bytes, **options: Any) -> None:
    """A session of hub 2 with these Topic Filters. Nobody refers to it but the tenant."""
    session = Session(plane, client_id, "dev1", True, 9, EPOCH + 1)
    session.control = SessionControl(5, 100, None, 77)
    session.control.place = Place(2, EPOCH + 1, since_ms=1_700_000_000_000)
    plane.sessions[client_id] = session
    for topic_filter in filters:
        subscription = Subscription(session, topic_filter, **options)
        plane.router.subscribe(subscription)
        session.note(subscription)


def is_packed(plane: TenantPlane, client_id: str = "c") -> bool:
    pack(plane, [client_id])
    return client_id in plane.sessions.packed


def test_session_of_another_hub_is_packed_and_wakes_by_its_name(plane: TenantPlane) -> None:
    """Its Will, its device and its options are what they were."""
    begin(plane, "c", b"a", b"b/#", qos=2, retain_as_published=True, retain_handling=2, identifier=7)
    will = plane.sessions["c"].control.will = Will(b"w", b"", 1, False)

    assert is_packed(plane)
    assert (len(plane.sessions), "c" in plane.sessions, list(plane.sessions)) == (1, True, ["c"])
    ((name, packed),) = plane.sessions.items()
    assert (name, packed.is_persistent, packed.device, packed.queue_id) == ("c", True, "dev1", 9)
    assert [each.filter for each in subscriptions_of(packed)] == [b"a", b"b/#"]
    session = plane.sessions["c"]
    assert (session.control.will, session.control.device_id, session.device) == (will, 77, "dev1")
    assert [
        (each.filter, each.qos, each.retain_as_published, each.retain_handling, each.identifier, each.session)
        for each in session.subscriptions.values()
    ] == [(b"a", 2, True, 2, 7, session), (b"b/#", 2, True, 2, 7, session)]
    assert (list(plane.sessions.packed), plane.router.subscription_count) == ([], 2)


@pytest.mark.parametrize("topic_filter", [b"a/b", b"a/+", b"#"])
def test_message_wakes_whom_it_is_for(plane: TenantPlane, topic_filter: bytes) -> None:
    """The route that is kept refers to the session, which stays awake until it is not kept any more."""
    begin(plane, "c", topic_filter)
    begin(plane, "other", b"x/y")
    assert is_packed(plane)
    assert is_packed(plane, "other")

    route = plane.router.match(b"a/b")

    assert [target.session for target in route.targets] == [plane.sessions["c"]]
    assert list(plane.sessions.packed) == ["other"]
    del route
    pack_woken(plane, 10)
    assert list(plane.sessions.woken) == ["c"]
    plane.router.cache.clear()
    pack_woken(plane, 10)
    assert (sorted(plane.sessions.packed), plane.sessions.woken) == (["c", "other"], {})


def test_woken_sessions_are_packed_a_part_at_a_time(plane: TenantPlane) -> None:
    """One that is in use does not keep others from being packed."""
    for client_id in ("one", "two", "three"):
        begin(plane, client_id)
        assert is_packed(plane, client_id)
    one = plane.sessions["one"]
    assert plane.sessions["two"].client_id + plane.sessions["three"].client_id == "twothree"

    pack_woken(plane, 2)

    assert (list(plane.sessions.packed), list(plane.sessions.woken)) == (["two"], ["three", "one"])
    assert one is plane.sessions["one"]


def test_second_subscription_of_a_filter_wakes_the_first(plane: TenantPlane) -> None:
    """Both get what is published, and neither is packed: the router has an object for all subscriptions of one filter."""
    begin(plane, "c", b"a")
    assert is_packed(plane)

    begin(plane, "d", b"a")

    assert {target.session.client_id for target in plane.router.match(b"a").targets} == {"c", "d"}
    plane.router.cache.clear()
    assert (is_packed(plane, "c"), is_packed(plane, "d")) == (False, False)


def test_session_that_somebody_refers_to_is_not_packed(plane: TenantPlane) -> None:
    """There are never two objects of one session."""
    begin(plane, "c", b"a")
    held: Any = plane.sessions["c"]
    assert not is_packed(plane)

    held = next(iter(held.subscriptions.values()))
    assert not is_packed(plane)

    del held
    assert is_packed(plane)


def test_new_session_takes_the_place_of_a_packed_one(plane: TenantPlane) -> None:
    """The router has no name of a session that is not packed."""
    begin(plane, "c", b"a")
    assert is_packed(plane)

    begin(plane, "c", b"b")

    assert [target.session.client_id for target in plane.router.match(b"a").targets] == ["c"]
    assert (list(plane.sessions.awake), list(plane.sessions.packed)) == (["c"], [])


def _here(session: Session) -> None:
    session.control.place.holder = HERE


def _alone(session: Session) -> None:
    session.control.place = None


def _ended(session: Session) -> None:
    session.control.place.logged_epoch = ENDED


def _discarded(session: Session) -> None:
    session.is_discarded = True


def _waits(session: Session) -> None:
    session.control.expires_at = 5.0


def _windowed(session: Session) -> None:
    session.window = Window(1, True)


def _reading(session: Session) -> None:
    session.is_reading = True


def _foreign_epoch(session: Session) -> None:
    session.epoch = 1


@pytest.mark.parametrize("change", [_here, _alone, _ended, _discarded, _waits, _windowed, _reading, _foreign_epoch])
def test_session_of_which_something_is_here_is_not_packed(plane: TenantPlane, change: Any) -> None:
    """It is this hub's, has ended, has a deadline or a window, a page is being read, or its numbers are unusual."""
    begin(plane, "c", b"a")
    change(plane.sessions["c"])

    assert not is_packed(plane)


@pytest.mark.parametrize(
    ("topic_filter", "options"), [(b"a", {"group": b"g"}), (b"a", {"no_local": True}), (b"$SYS/broker/uptime", {})]
)
def test_subscription_that_is_looked_at_without_its_session_keeps_it_awake(
    plane: TenantPlane, topic_filter: bytes, options: dict[str, Any]
) -> None:
    """Members of groups, No Local and the hub's own topics."""
    begin(plane, "c", topic_filter, **options)

    assert not is_packed(plane)
