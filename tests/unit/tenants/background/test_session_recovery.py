"""A hub starts: sessions of the log get their places, their deadlines and their Wills; queues without a session are dropped."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, TypeVar, cast

import pytest

from iothub.base.errors import BackendError
from iothub.records import events
from iothub.records.events import Event, Subject
from iothub.records.state import SessionState, fold
from iothub_services.queues.port import QueueLimits
from iothub_services.quota.names import Quota
from iothub_services.sessions.port import HERE
from iothub_tenants.background.session_recovery import Peers, Retry, SessionRecovery, run_once
from iothub_tenants.broker.queue_bounds import QueueBounds
from tests.support.clients import property_names as names
from tests.support.in_process.control_harness import Harness, now, run

T = TypeVar("T")

KEPT = [(names.SESSION_EXPIRY, 100)]


def load(
    harness: Harness,
    states: Iterable[SessionState],
    last_heartbeat: float | None = None,
    *,
    has_queues: bool = True,
    peers: Peers | None = None,
    retry: Retry = run_once,
) -> int:
    """Start with these states, and queues for all of them and without a session (99)."""
    known = list(states)
    for queue_id in (*(state.queue_id for state in known if has_queues), 99):
        now(harness.queues.create(7, queue_id, QueueLimits(), queue_id << 24))
        now(harness.queues.claim(queue_id, b"w"))
    registry = SimpleNamespace(
        tenant_names=lambda: {7: "acme", 8: "gone"},
        tenant_by_id=lambda tenant_id: harness.accounts.tenants["acme"] if tenant_id == 7 else None,
    )
    queues = cast("Any", harness.queues)
    recovery = SessionRecovery(
        harness.hub,
        cast("Any", registry),
        queues,
        QueueBounds(queues, harness.hub.brokers, harness.later),
        cast("Any", run),
        last_heartbeat=last_heartbeat,
        retry=retry,
    )
    return cast("int", now(recovery.load_sessions(known, peers)))


def state(harness: Harness, *more: Event, at_s: float = 0.0) -> SessionState:
    """A kept session of 100 s that subscribed to a and to a shared b, `at_s` before now."""
    subject = subject_of(harness, at_s)
    begin = events.session_created(subject, device="dev1", queue_id=5, protocol_version=5, session_expiry_s=100)
    wishes = [
        events.session_subscribed(
            subject,
            topic_filter=topic_filter,
            group=group,
            qos=1,
            no_local=False,
            retain_as_published=False,
            retain_handling=0,
            identifier=0,
        )
        for topic_filter, group in (("a", None), ("b", "g"))
    ]
    folded: SessionState | None = None
    for event in (begin, *wishes, *more):
        folded = fold(folded, event)
    assert folded is not None
    return folded


def subject_of(harness: Harness, ago_s: float = 0.0) -> Subject:
    return Subject(7, "c", (5 << 24) + 1, int((harness.clock.wall() - ago_s) * 1000))


def gone(harness: Harness, ago_s: float) -> Event:
    return events.session_disconnected(subject_of(harness, ago_s), reason="network")


def connected(harness: Harness) -> Event:
    return events.session_connected(
        subject_of(harness, 60),
        device="dev1",
        protocol_version=5,
        session_expiry_s=100,
        peer="192.0.2.1:4711",
        keep_alive_s=60,
    )


def will(harness: Harness, delay_s: int) -> Event:
    return events.will_set(
        subject_of(harness), topic="w", payload=b"gone", qos=0, retain=False, properties=b"", delay_s=delay_s
    )


def test_session_is_there_with_subscriptions_and_counts(harness: Harness) -> None:
    assert load(harness, [state(harness, gone(harness, 1))]) == 1

    session = harness.session("c")
    assert set(session.subscriptions) == {(None, b"a"), (b"g", b"b")}
    assert [harness.used(each) for each in (Quota.SESSIONS, Quota.SUBSCRIPTIONS, Quota.SHARED_GROUPS)] == [1, 2, 1]
    assert harness.join(clean=False, props=KEPT).connack.session_present


def test_session_without_its_queue_ends(harness: Harness) -> None:
    """A success for what is stored nowhere would be a lie: publishers find no subscriber, the client Session Present 0."""
    lost = state(harness, gone(harness, 1))

    assert load(harness, [lost], has_queues=False) == 0

    (event,) = harness.journal.events
    assert (event.type.value, event.epoch, event.facts["reason"]) == ("session.discarded", lost.epoch, "queue_lost")
    assert lost.queue_id in harness.queues.dropped  # a damaged one is not listed, but there
    assert not harness.join(clean=False, props=KEPT).connack.session_present


def test_queues_of_nobody_are_dropped(harness: Harness) -> None:
    load(harness, [state(harness, gone(harness, 1))])

    assert harness.queues.dropped == [99]


def test_session_goes_on_expiring(harness: Harness) -> None:
    """It was offline for 60 of its 100 seconds."""
    load(harness, [state(harness, gone(harness, 60), at_s=60)])
    harness.pass_time(39)
    assert "c" in harness.acme.plane.sessions

    harness.pass_time(2)
    assert "c" not in harness.acme.plane.sessions


def test_session_whose_connection_died_with_the_hub_expires_from_its_last_heartbeat(harness: Harness) -> None:
    """The hub was down for 30 of the session's 100 seconds; a clock that went back, or a beat before the connect, changes nothing for the worse."""
    load(harness, [state(harness, connected(harness), at_s=60)], last_heartbeat=harness.clock.wall() - 30)
    (event,) = harness.journal.events
    assert event.at_ms == int((harness.clock.wall() - 30) * 1000)
    harness.pass_time(69)
    assert "c" in harness.acme.plane.sessions

    harness.pass_time(2)
    assert "c" not in harness.acme.plane.sessions


@pytest.mark.parametrize(("beat_s", "expected_s"), [(1000, 0), (-1000, -60)])
def test_last_heartbeat_is_believed_within_reason(harness: Harness, beat_s: float, expected_s: float) -> None:
    """Not in the future, and not before the connection came."""
    load(harness, [state(harness, connected(harness), at_s=60)], last_heartbeat=harness.clock.wall() + beat_s)

    (event,) = harness.journal.events
    assert event.at_ms == int((harness.clock.wall() + expected_s) * 1000)


def test_session_whose_connection_died_with_an_unknown_hub_begins_to_expire_now(harness: Harness) -> None:
    """An event says so."""
    load(harness, [state(harness, connected(harness), at_s=60)])
    assert harness.journal.words() == ["session.disconnected"]
    harness.pass_time(99)
    assert "c" in harness.acme.plane.sessions

    harness.pass_time(1)
    assert "c" not in harness.acme.plane.sessions


def test_will_of_a_session_waits_on(harness: Harness) -> None:
    """It is sent although its device has not come back: with the rights that its session has then."""
    load(harness, [state(harness, will(harness, 10))])

    assert harness.session("c").control.will.payload == b"gone"
    assert harness.session("c").control.will_at - harness.clock.monotonic() == 10
    watcher = harness.join("watcher", username="acme/dev2")
    watcher.subscribe(("w", 0))
    harness.pass_time(10)
    assert [packet.payload for packet in watcher.fence()] == [b"gone"]
    assert harness.session("c").control.will is None
    assert "will.cleared" in harness.journal.words()


def test_will_of_a_device_that_is_gone_meanwhile_is_dropped(harness: Harness) -> None:
    """Named and counted."""
    load(harness, [state(harness, will(harness, 10))])
    harness.accounts.add(
        harness.accounts.tenants["acme"], replace(harness.accounts.devices[7, "dev1"], is_enabled=False)
    )
    harness.hub.authenticator.invalidate(7, "dev1")

    harness.pass_time(10)

    assert harness.acme.plane.counters.drops()["denied"] == 1


def test_nothing_is_loaded_for_tenants_that_are_gone(harness: Harness) -> None:
    assert load(harness, []) == 0
    assert harness.queues.dropped == [99]


class Street:
    """Other hubs that live, and what the log says when it is asked again."""

    def __init__(self, *living: int) -> None:
        self.asked: list[str] = []
        self.ended: set[str] = set()
        self.peers = Peers(1, frozenset(living), self.read_again)

    async def read_again(self, states: list[SessionState]) -> list[SessionState]:
        self.asked += [state.client_id for state in states]
        return [state for state in states if state.client_id not in self.ended]


def test_session_of_a_hub_that_lives_is_packed(harness: Harness) -> None:
    """One that is in no shared group: it wakes with its terms."""
    one = state(harness, connected(harness))._replace(hub="2.5")
    plain = {place: options for place, options in one.subscriptions.items() if place[0] is None}

    assert load(harness, [one._replace(subscriptions=plain)], peers=Street(2).peers) == 1

    sessions = harness.acme.plane.sessions
    assert (list(sessions.awake), list(sessions.packed)) == ([], ["c"])
    session = harness.session("c")
    assert (list(session.subscriptions), session.control.expiry_s) == ([(None, b"a")], 100)
    assert (session.control.place.holder, session.control.place.is_online) == (2, True)


def test_session_of_a_hub_that_lives_is_known_and_left_alone(harness: Harness) -> None:
    """No `hub_lost`, no deadline; and no queue is dropped, for a young one may be of a session that is on its way."""
    one = state(harness, connected(harness))._replace(hub="2.5")

    assert load(harness, [one], peers=Street(2).peers) == 1
    harness.clock.advance(1000)
    now(harness.sessions.run_deadlines())

    place = harness.session("c").control.place
    assert (place.holder, place.is_online, place.logged_epoch) == (2, True, one.epoch)
    assert harness.journal.words() == []
    assert harness.queues.dropped == []


@pytest.mark.parametrize(("hub", "living"), [("1.4", {2}), ("", {2}), ("2.5", set())])
def test_session_of_a_predecessor_or_of_a_dead_hub_without_others_is_this_hubs(
    harness: Harness, hub: str, living: set[int]
) -> None:
    """As after a restart: its connection is lost, its time runs."""
    one = state(harness, connected(harness))._replace(hub=hub)

    load(harness, [one], peers=Street(*living).peers)

    assert harness.journal.words() == ["session.disconnected"]
    assert harness.session("c").control.place.holder == HERE
    assert harness.session("c").control.expires_at > 0.0


def test_session_whose_queue_is_missing_is_asked_for_again_before_it_is_ended(harness: Harness) -> None:
    """Another hub may have ended it since the states were read."""
    street = Street(2)
    street.ended.add("c")
    load(harness, [state(harness)._replace(hub="1.4")], has_queues=False, peers=street.peers)
    assert (street.asked, harness.journal.words()) == (["c"], [])

    again = Street(2)
    load(harness, [state(harness)._replace(hub="1.4")], has_queues=False, peers=again.peers)
    assert harness.journal.words() == ["session.discarded"]

    load(harness, [state(harness)._replace(hub="2.5")], has_queues=False, peers=again.peers)
    assert harness.journal.words() == []
    assert harness.session("c").control.place.holder == 2


class Failing:
    """Stores whose every call fails once, before it has done something or afterwards; each piece of work is done again."""

    def __init__(self) -> None:
        self.failures: list[str] = []

    async def retry(self, work: Callable[[], Awaitable[T]]) -> T:
        while True:
            try:
                return await work()
            except BackendError as error:
                self.failures.append(str(error))

    def of(self, queues: Any, name: str, *, is_done: bool) -> Callable[..., Awaitable[Any]]:
        verb, left = getattr(queues, name), ["once"]

        async def call(*args: Any) -> Any:
            answer = await verb(*args) if is_done or not left else None
            if left:
                left.pop()
                raise BackendError(f"{name} was not answered", retryable=True)
            return answer

        return call


@pytest.mark.parametrize("is_done", [False, True])
def test_servers_that_fail_in_the_middle_leave_nothing_half_loaded(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, is_done: bool
) -> None:
    """Each call is made again by itself: a session is there once, its lost connection is told of once, as is what has no queue."""
    failing, _ = Failing(), harness.acme  # whose limits were set without waiting for an answer
    for name in ("list_queues", "set_tenant_limits", "drop"):
        monkeypatch.setattr(harness.queues, name, failing.of(harness.queues, name, is_done=is_done), raising=False)
    one = state(harness, connected(harness))

    assert load(harness, [one], retry=cast("Retry", failing.retry)) == 1

    assert sorted(failing.failures) == [
        f"{name} was not answered" for name in ("drop", "list_queues", "set_tenant_limits")
    ]
    assert harness.journal.words() == ["session.disconnected"]
    assert [harness.used(each) for each in (Quota.SESSIONS, Quota.SUBSCRIPTIONS)] == [1, 2]
    assert set(harness.queues.dropped) == {99}


def test_hub_that_came_while_this_one_waited_for_a_server_keeps_what_it_began(harness: Harness) -> None:
    """The states were read before: its young queue is not dropped, its session not ended, and that of the hub before it is not its own."""
    street = Street()
    street.peers = replace(street.peers, joined=lambda: frozenset({2}))

    load(harness, [state(harness)._replace(hub="2.1")], has_queues=False, peers=street.peers)

    assert (street.asked, harness.journal.words(), harness.queues.dropped) == (["c"], [], [])
    assert harness.session("c").control.place.holder == 2
    one = state(harness, gone(harness, 1))._replace(hub="3.7")
    assert street.peers.holder_of(one) == HERE
