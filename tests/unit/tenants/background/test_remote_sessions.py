"""What other hubs do to sessions, as this hub takes it from the log."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from iothub.base.errors import UnavailableError
from iothub.records import events
from iothub.records.events import EventType
from iothub.records.state import fold
from iothub_services.quota.names import Quota
from iothub_services.sessions.endings import RETRY_S
from iothub_services.sessions.port import ENDED, HERE
from iothub_tenants.background.remote_sessions import CLOCKS_MS
from iothub_tenants.broker.wills import Wills
from tests.support.in_process.control_harness import now
from tests.support.in_process.other_hubs_sessions import KEPT, ME, Scenario, filters, will


@pytest.fixture
def scenario(tmp_path: Path) -> Any:
    scenario = Scenario(tmp_path)
    yield scenario
    scenario.harness.close()


def test_whoever_stores_for_a_session_hears_that_another_hub_has_its_client(scenario: Scenario) -> None:
    """Each time, and only then: neither of a session that this hub has, nor of an older connection."""
    scenario.has_queue()
    scenario.say(scenario.created())
    assert scenario.online == []
    scenario.say(scenario.connected())
    assert scenario.online == [scenario.harness.session("c")]
    scenario.say(scenario.connected(scenario.epoch - 1))
    scenario.say(scenario.resumed(scenario.epoch + 1))
    assert len(scenario.online) == 1
    scenario.say(scenario.connected(scenario.epoch + 1))
    scenario.say(scenario.connected(scenario.epoch + 2), hub=ME)

    assert len(scenario.online) == 2


def test_session_of_another_hub_is_known_here_with_its_routes(scenario: Scenario) -> None:
    """Publishers here fill its queue; it is counted; its deadlines are not this hub's."""
    scenario.has_queue()
    scenario.say(scenario.created(), scenario.connected(), scenario.subscribed("a"))
    publisher = scenario.harness.join("p", username="acme/dev2")

    publisher.publish("a", b"x", qos=1)
    scenario.harness.clock.advance(1000)
    now(scenario.harness.sessions.run_deadlines())

    assert [record.message.payload for record in scenario.harness.store.queue(500).records.values()] == [b"x"]
    assert (scenario.place.holder, scenario.place.is_online) == (2, True)
    assert (scenario.harness.used(Quota.SESSIONS), scenario.harness.used(Quota.SUBSCRIPTIONS)) == (1, 1)
    scenario.say(events.session_unsubscribed(scenario.subject(), topic_filter="a", group=None))
    assert (filters(scenario.harness), scenario.harness.used(Quota.SUBSCRIPTIONS)) == ([], 0)


def test_session_that_ended_elsewhere_is_gone_here_and_its_queue_is_not_dropped_again(scenario: Scenario) -> None:
    """Its own hub has done that."""
    scenario.has_queue()
    scenario.say(scenario.created(), scenario.subscribed("a"), events.session_expired(scenario.subject()))

    assert "c" not in scenario.harness.acme.plane.sessions
    assert (scenario.harness.used(Quota.SESSIONS), scenario.harness.used(Quota.SUBSCRIPTIONS)) == (0, 0)
    assert scenario.harness.queues.dropped == []


def test_events_below_the_last_epoch_count_for_nothing(scenario: Scenario) -> None:
    """As in the fold: a hub that was overtaken may still write."""
    scenario.say(
        scenario.created(), scenario.resumed(scenario.epoch + 1), scenario.subscribed("late"), scenario.connected()
    )

    assert (filters(scenario.harness), scenario.place.is_online) == ([], False)


def test_client_of_a_session_that_went_on_elsewhere_is_closed(scenario: Scenario) -> None:
    """0x8E; its Will is the other hub's; the session stays, and is that one's."""
    client = scenario.harness.join("c", props=KEPT, will=("w/c", b"bye", 0, False))
    scenario.echo()
    session = scenario.harness.session("c")

    scenario.say(scenario.resumed(session.epoch + 1))

    client.refused(0x8E)
    assert session.control.place.holder == 2
    assert session.control.expires_at == 0.0
    assert session.window is None
    assert "will.cleared" not in scenario.harness.journal.words()


def test_client_comes_from_another_hub_with_its_session(scenario: Scenario) -> None:
    """The queue is claimed; what that hub said of it before is in force; its Will is sent from here."""
    watcher = scenario.harness.join("watcher", username="acme/dev2")
    watcher.subscribe(("w/#", 0))
    scenario.has_queue()
    scenario.say(scenario.created(), scenario.connected(), will(scenario), scenario.subscribed("a"))

    client = scenario.harness.join("c", clean=False, props=KEPT)

    assert client.connack.session_present
    assert scenario.cluster.caught_up > 0
    assert (scenario.place.holder, scenario.harness.session("c").epoch) == (HERE, scenario.epoch + 1)
    assert watcher.get()[0].payload == b"bye"
    words = [event.type.value for event in scenario.harness.journal.events if event.client_id == "c"]
    assert words == ["session.taken_over", "will.cleared", "session.resumed", "session.connected"]


def test_late_subscription_of_the_hub_before_counts_until_the_log_has_the_own_claim(scenario: Scenario) -> None:
    """It was durable before; then no more."""
    scenario.has_queue()
    scenario.say(scenario.created(), scenario.connected())
    scenario.harness.join("c", clean=False, props=KEPT)

    scenario.say(scenario.subscribed("before"))
    scenario.echo()
    scenario.say(scenario.subscribed("after"))

    assert filters(scenario.harness) == [b"before"]


def test_of_two_sessions_that_began_at_once_the_higher_epoch_lasts(scenario: Scenario) -> None:
    """Here and there: the loser's client is closed, and its queue dropped by its own hub."""
    client = scenario.harness.join("c", props=KEPT)
    queue_id = scenario.harness.session("c").queue_id
    scenario.say(scenario.created(epoch=1))
    assert scenario.place.holder == HERE

    scenario.say(scenario.created())

    client.refused(0x8E)
    assert (scenario.place.holder, scenario.harness.session("c").epoch) == (2, scenario.epoch)
    assert scenario.harness.queues.dropped == [queue_id]


def test_other_session_that_came_while_ours_began_is_higher_or_gives_way(scenario: Scenario) -> None:
    """Our own event was on its way."""
    scenario.harness.journal.is_held = True
    lost = scenario.harness.open_connection()
    lost.send(lost.connect_bytes("c", "acme/dev1", "secret", props=KEPT))
    scenario.say(scenario.created())
    scenario.harness.journal.release()
    scenario.harness.settle()

    assert scenario.place.holder == 2
    assert scenario.harness.queues.dropped == [1]


def test_hub_that_was_taken_for_dead_contradicts(scenario: Scenario) -> None:
    """Its client is still here."""
    client = scenario.harness.join("c", props=KEPT)
    scenario.echo()
    epoch = scenario.harness.session("c").epoch

    scenario.say(events.session_disconnected(scenario.subject(epoch), reason="hub_lost"))

    assert scenario.harness.journal.words() == ["session.connected"]
    client.ping()


def test_sessions_of_a_hub_that_is_gone_are_this_hubs(scenario: Scenario) -> None:
    """The connected one is told of in the log; its Will is sent and its time runs, from when its hub was last seen."""
    watcher = scenario.harness.join("watcher", username="acme/dev2")
    watcher.subscribe(("w/#", 0))
    scenario.has_queue()
    scenario.say(scenario.created(), scenario.connected(), will(scenario))
    scenario.harness.journal.words()
    lost_at_ms = int(scenario.harness.clock.wall() * 1000)
    scenario.harness.clock.advance(10)

    assert now(scenario.remote_sessions.take_over(frozenset({2}), lost_at_ms)) == 1
    assert now(scenario.remote_sessions.take_over(frozenset({2}), lost_at_ms)) == 0
    (lost,) = scenario.harness.journal.events
    now(scenario.harness.sessions.run_deadlines())
    scenario.harness.settle()

    assert (lost.type.value, lost.at_ms, lost.facts["reason"]) == ("session.disconnected", lost_at_ms, "hub_lost")
    assert watcher.get()[0].payload == b"bye"
    scenario.harness.clock.advance(91)
    now(scenario.harness.sessions.run_deadlines())
    assert "c" not in scenario.harness.acme.plane.sessions


def test_session_whose_hub_dies_while_its_client_connects_is_offline_since_then(scenario: Scenario) -> None:
    """Not since the connection before: its Will would come too early [MQTT-3.1.3-9]."""
    scenario.say(scenario.created(), scenario.connected())
    scenario.say(
        events.session_disconnected(scenario.subject(), reason="network"), scenario.resumed(scenario.epoch + 1)
    )
    lost_at_ms = int(scenario.harness.clock.wall() * 1000) + 60_000

    now(scenario.remote_sessions.take_over(frozenset({2}), lost_at_ms))

    assert scenario.place.since_ms == lost_at_ms


@pytest.mark.parametrize(
    ("reason", "ahead_ms", "expected_ms"),
    [
        ("network", 0, 0),
        ("network", 3_600_000, 0),
        ("network", -2_000, -2_000),
        ("network", -3_600_000, -CLOCKS_MS),
        ("hub_lost", -15_000, -15_000),
        ("hub_lost", 3_600_000, 0),
    ],
)
def test_connection_that_another_hub_has_lost_is_lost_by_the_clock_here(
    scenario: Scenario, reason: str, ahead_ms: int, expected_ms: int
) -> None:
    """That hub's clock may be wrong: a Will would come hours too late, or too early [MQTT-3.1.3-9]."""
    here_ms = int(scenario.harness.clock.wall() * 1000)
    scenario.say(scenario.created(), scenario.connected())

    lost = replace(events.session_disconnected(scenario.subject(), reason=reason), at_ms=here_ms + ahead_ms)
    scenario.say(lost)

    assert scenario.place.since_ms == here_ms + expected_ms


def test_last_of_two_successors_in_the_log_has_the_session(scenario: Scenario) -> None:
    """Both thought that it was theirs; one of them runs its deadlines."""
    scenario.say(scenario.created())
    now(scenario.remote_sessions.take_over(frozenset({2}), 0))
    ours = scenario.harness.journal.events.pop().written_by(ME)
    theirs = events.session_disconnected(scenario.subject(), reason="hub_lost").written_by("3.300")

    now(scenario.remote_sessions.apply_events([ours, theirs]))
    assert (scenario.place.holder, scenario.harness.session("c").control.expires_at) == (3, 0.0)
    now(scenario.remote_sessions.apply_events([theirs, ours]))

    assert scenario.place.holder == HERE
    assert scenario.harness.session("c").control.expires_at > 0.0


def test_session_that_another_hub_has_just_claimed_does_not_expire(scenario: Scenario) -> None:
    """That hub's claim stays the last one: its client is connected, and would be closed (0x8E)."""
    client = scenario.harness.join("c", props=KEPT)
    client.drop()
    scenario.harness.settle()
    session = scenario.harness.session("c")
    theirs = now(scenario.harness.queues.claim(session.queue_id, b"another hub's")).epoch
    scenario.harness.clock.advance(101)

    now(scenario.harness.sessions.run_deadlines())

    assert scenario.harness.session("c") is session
    assert scenario.harness.queues.dropped == []
    assert scenario.harness.store.queue(session.queue_id).epoch == theirs
    scenario.say(scenario.resumed(theirs))
    scenario.harness.clock.advance(1000)
    now(scenario.harness.sessions.run_deadlines())
    assert scenario.harness.session("c") is session


@pytest.mark.parametrize("is_log_slow", [False, True])
def test_client_whose_session_has_just_expired_at_another_hub_gets_a_new_one(
    scenario: Scenario, is_log_slow: bool
) -> None:
    """That end is in the log before this hub's claim: it is read before the claim is logged, or behind that."""
    scenario.has_queue()
    scenario.say(scenario.created())
    ended = events.session_expired(scenario.subject())
    client = scenario.harness.open_connection()
    scenario.harness.journal.is_held = True
    client.send(client.connect_bytes("c", "acme/dev1", "secret", clean=False, props=KEPT))
    if is_log_slow:
        scenario.cluster.unread = lambda: scenario.say(ended)
    else:
        scenario.say(ended)
    scenario.harness.journal.release()
    scenario.harness.settle()

    connack = client.next()
    assert (connack.code, connack.session_present) == (0, False)
    assert (scenario.place.holder, scenario.harness.session("c").queue_id) == (HERE, 1)


def test_session_of_another_hub_waits_for_its_client_when_the_log_cannot_be_read(scenario: Scenario) -> None:
    """CONNECT is refused; its time runs here now."""
    scenario.has_queue()
    scenario.say(scenario.created())
    scenario.harness.journal.is_held = True
    client = scenario.harness.open_connection()
    client.send(client.connect_bytes("c", "acme/dev1", "secret", clean=False, props=KEPT))
    scenario.cluster.unread = scenario.cluster.fail
    scenario.harness.journal.release()
    scenario.harness.settle()

    assert client.next().code == 0x88
    assert scenario.harness.session("c").control.expires_at > 0.0


def test_session_that_went_on_elsewhere_does_not_expire_at_the_second_try(scenario: Scenario) -> None:
    """The first attempt lost to the other hub's claim, and claimed above it; the other hub's events must still count."""
    scenario.harness.join("c", props=KEPT).drop()
    scenario.harness.settle()
    session = scenario.harness.session("c")
    theirs = now(scenario.harness.queues.claim(session.queue_id, b"another hub's")).epoch
    scenario.harness.clock.advance(101)
    now(scenario.harness.sessions.run_deadlines())
    scenario.say(scenario.resumed(theirs), scenario.connected(theirs))

    scenario.harness.clock.advance(1)
    now(scenario.harness.sessions.run_deadlines())
    scenario.harness.settle()

    assert scenario.harness.acme.plane.sessions.get("c") is session
    assert scenario.harness.queues.dropped == []
    assert session.control.place.holder == 2


def test_session_whose_other_hub_died_after_its_claim_expires_at_last(scenario: Scenario) -> None:
    """It claimed and said nothing."""
    scenario.harness.join("c", props=KEPT).drop()
    scenario.harness.settle()
    now(scenario.harness.queues.claim(scenario.harness.session("c").queue_id, b"another hub's"))
    scenario.harness.clock.advance(101)
    for _ in range(3):
        now(scenario.harness.sessions.run_deadlines())
        scenario.harness.clock.advance(RETRY_S)

    assert "c" not in scenario.harness.acme.plane.sessions


@pytest.mark.parametrize("holder", [HERE, 2])
@pytest.mark.parametrize("is_lost", [False, True])
def test_session_whose_queue_is_lost_is_ended_by_the_hub_that_finds_out(
    scenario: Scenario, holder: int, is_lost: bool
) -> None:
    """Whichever has it: the other one may never touch the queue. Of a session that another hub has it claims nothing."""
    harness = scenario.harness
    harness.join("c", props=KEPT).drop()
    harness.settle()
    session = harness.session("c")
    session.control.place.holder = holder
    epoch = harness.store.queue(session.queue_id).epoch
    if is_lost:
        harness.queues.owners.clear()
    harness.journal.words()

    harness.sessions.queue_lost(harness.acme, session)
    harness.settle()

    ended = ([], [session.queue_id], ["session.discarded"])
    found = (list(harness.acme.plane.sessions), harness.queues.dropped, harness.journal.words())
    assert found == (ended if is_lost else (["c"], [], []))
    assert is_lost or harness.store.queue(session.queue_id).epoch == epoch + (holder == HERE)


def test_session_whose_end_is_in_the_log_is_not_resumed(scenario: Scenario, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing that follows the end would count: for the fold and all other hubs there is no session."""
    scenario.harness.join("c", props=KEPT).drop()
    scenario.harness.settle()
    scenario.echo()

    async def fail_behind_the_end() -> None:
        if any(event.type is EventType.SESSION_EXPIRED for event in scenario.harness.journal.events):
            raise UnavailableError("the log is away")

    scenario.harness.clock.advance(101)
    with monkeypatch.context() as patch:
        patch.setattr(scenario.cluster, "catch_up", fail_behind_the_end)
        now(scenario.harness.sessions.run_deadlines())
    scenario.echo()

    assert not scenario.harness.join("c", clean=False, props=KEPT).connack.session_present


def test_late_beginning_below_the_last_end_counts_for_nothing(scenario: Scenario) -> None:
    """A slow hub created what another one has replaced and ended since: the fold remembers the end, and so does the picture."""
    ended = events.session_expired(scenario.subject(9 << 24))
    scenario.say(scenario.created(9 << 24), ended, scenario.created(8 << 24))

    assert "c" not in scenario.harness.acme.plane.sessions


def test_own_end_in_the_log_is_final(scenario: Scenario) -> None:
    """What another hub says behind it, the fold ignores, too."""
    scenario.has_queue()
    scenario.say(scenario.created())
    scenario.say(events.session_expired(scenario.subject()), hub=ME)

    assert scenario.place.logged_epoch == ENDED
    scenario.say(scenario.resumed(scenario.epoch + 1))
    assert scenario.place.holder == 2
    assert scenario.harness.session("c").epoch == scenario.epoch


def test_acknowledgement_of_a_subscription_waits_until_every_hub_knows_it(scenario: Scenario) -> None:
    """Of a persistent session alone: no other hub has the others."""
    kept, short = scenario.harness.join("kept", props=KEPT), scenario.harness.join("short")
    short.subscribe(("a", 1))
    assert scenario.cluster.settled == 0

    kept.subscribe(("a", 1))
    kept.unsubscribe("a")

    assert scenario.cluster.settled == 2


def test_picture_of_a_session_is_that_of_the_fold(scenario: Scenario) -> None:
    """Terms, subscriptions and Will, whatever came."""
    said = [
        scenario.created(),
        scenario.subscribed("a"),
        scenario.connected(),
        will(scenario, 5),
        scenario.subscribed("b"),
        events.session_unsubscribed(scenario.subject(), topic_filter="a", group=None),
        events.session_disconnected(scenario.subject(), reason="network", session_expiry_s=7),
    ]
    scenario.say(*said)
    state = None
    for event in said:
        state = fold(state, event)

    assert state is not None
    control = scenario.harness.session("c").control
    assert (control.expiry_s, control.will.delay_s, scenario.place.is_online) == (state.session_expiry_s, 5, False)
    assert filters(scenario.harness) == [key[1].encode() for key in state.subscriptions]


def test_will_that_is_stored_late_leaves_the_next_hub_s_will_in_the_log(
    scenario: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This hub has read that another one has the client, and the Will of that connection is in the next page."""
    done: list[Callable[[], None]] = []
    monkeypatch.setattr(Wills, "fire", lambda _wills, _session, _message, on_done: done.append(on_done))
    client = scenario.harness.join("c", props=KEPT, will=("w/c", b"bye", 0, False))
    client.drop()
    scenario.harness.settle()
    scenario.echo()
    assert len(done) == 1
    scenario.epoch = scenario.harness.session("c").epoch + 1
    scenario.say(scenario.resumed(scenario.epoch))

    done[0]()

    assert "will.cleared" not in scenario.harness.journal.words()
