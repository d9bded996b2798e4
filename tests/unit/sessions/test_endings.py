"""How sessions end: expiry, an operator's word, and what must be durable before."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.defer import Deferred

from iothub_services.queues.port import StaleEpochError
from iothub_services.quota.names import Quota
from iothub_services.sessions import endings
from iothub_services.sessions.firing import WAIT_S
from tests.support.clients import property_names as names
from tests.support.clients.mqtt_clients import Client
from tests.support.in_process.control_harness import Harness, now
from tests.support.in_process.kept_sessions import KEPT, WILL, keen_on_wills, keep, payloads

SHARED = ("$share/g/a", 1)


def test_session_expires(harness: Harness) -> None:
    """Its queue is dropped, its places are given back, the event is written."""
    client = keep(harness)
    client.subscribe(("a", 1))
    client.disconnect()
    harness.pass_time(99)
    assert "c" in harness.acme.plane.sessions
    harness.journal.words()

    harness.pass_time(1)

    assert "c" not in harness.acme.plane.sessions
    assert harness.queues.owners == {}
    assert harness.journal.words() == ["session.expired"]
    assert (harness.used(Quota.SESSIONS), harness.used(Quota.SUBSCRIPTIONS)) == (0, 0)


def test_session_of_a_connected_client_does_not_expire(harness: Harness) -> None:
    keep(harness).disconnect()
    client = keep(harness)
    harness.pass_time(200)

    assert "c" in harness.acme.plane.sessions
    client.ping()


def test_disconnect_changes_the_expiry(harness: Harness) -> None:
    """§3.14.2.2.2."""
    keep(harness).disconnect(0, props=[(names.SESSION_EXPIRY, 5)])
    harness.pass_time(5)

    assert "c" not in harness.acme.plane.sessions


def test_session_of_3_1_1_never_expires_by_itself(harness: Harness) -> None:
    harness.join(version=4, clean=False).disconnect()
    harness.pass_time(10_000_000)

    assert harness.join(version=4, clean=False).connack.session_present


def test_operator_discards_a_connected_session(harness: Harness, watcher: Client) -> None:
    """The client is told, its Will is sent, nothing is left; a second time there is nothing to discard."""
    client = keep(harness, will=WILL)

    assert now(harness.sessions.discard(harness.acme, "c", "operator"))
    harness.settle()

    client.expect_closed()
    assert "c" not in harness.acme.plane.sessions
    assert harness.queues.owners == {}
    assert payloads(watcher) == [b"gone"]
    assert not now(harness.sessions.discard(harness.acme, "c", "operator"))
    assert harness.used(Quota.CONNECTIONS) == 1


def test_queue_without_a_session_is_dropped_when_the_store_lets_us(harness: Harness) -> None:
    """A drop that fails is tried again, not forgotten."""
    harness.journal.is_down = harness.queues.is_down = True
    harness.ask(props=KEPT)
    assert list(harness.queues.owners) == [1]

    harness.queues.is_down = False
    harness.pass_time(0.2)

    assert harness.queues.owners == {}


def test_session_whose_end_could_not_be_made_durable_ends_later(harness: Harness) -> None:
    """It is neither forgotten nor kept for ever."""
    keep(harness).disconnect()
    harness.journal.is_down = True
    harness.pass_time(100)
    assert "c" in harness.acme.plane.sessions

    harness.journal.is_down = False
    harness.pass_time(endings.RETRY_S)

    assert "c" not in harness.acme.plane.sessions
    assert harness.used(Quota.SESSIONS) == 0


def test_end_of_a_session_waits_until_its_will_is_stored(harness: Harness) -> None:
    """A hub that dies in between sends it at its next start: the log has the session and its Will [MQTT-3.1.2-8]."""
    keen_on_wills(harness)
    keep(harness, will=WILL, will_props=[(names.WILL_DELAY, 50)]).drop()
    harness.journal.words()
    harness.is_store_held = True
    answers: list[bool] = []
    Deferred.fromCoroutine(harness.sessions.discard(harness.acme, "c", "operator")).addCallback(answers.append)
    harness.settle()
    assert (answers, harness.journal.words(), harness.sessions.wills_under_way) == ([], [], 1)

    harness.is_store_held = False
    harness.settle()

    assert (answers, harness.sessions.wills_under_way) == ([True], 0)
    assert harness.journal.words() == ["will.cleared", "session.discarded"]


def test_session_does_not_expire_before_the_will_that_has_just_fired_is_stored(harness: Harness) -> None:
    """The Will is under way when the session's own time comes."""
    keen_on_wills(harness)
    keep(harness, will=WILL, will_props=[(names.WILL_DELAY, 99)]).drop()
    harness.is_store_held = True
    harness.pass_time(99.5)
    harness.pass_time(1)
    assert "session.expired" not in harness.journal.words()

    harness.is_store_held = False
    harness.settle()

    assert harness.journal.words() == ["will.cleared", "session.expired"]


def test_session_whose_will_is_not_stored_in_time_expires_later(harness: Harness) -> None:
    """Its client can connect meanwhile."""
    keen_on_wills(harness)
    keep(harness, will=WILL, will_props=[(names.WILL_DELAY, 100)]).drop()
    harness.is_store_held = True
    harness.pass_time(100)
    harness.pass_time(WAIT_S)
    harness.is_store_held = False
    harness.settle()
    assert "session.expired" not in harness.journal.words()

    harness.pass_time(endings.RETRY_S)

    assert harness.journal.words() == ["session.expired"]


def test_log_that_does_not_answer_holds_up_no_will(harness: Harness, watcher: Client) -> None:
    """Sessions end beside one another."""
    keep(harness, "slow").disconnect()
    keep(harness, will=WILL, will_props=[(names.WILL_DELAY, 99)]).drop()
    harness.pass_time(1)
    harness.journal.is_held = True
    harness.pass_time(99)

    assert payloads(watcher) == [b"gone"]
    assert sorted(harness.acme.plane.sessions) == ["c", "slow", "watcher"]
    harness.journal.release()
    assert sorted(harness.acme.plane.sessions) == ["watcher"]


def sleeper_with_messages(harness: Harness, *filters: tuple[str, int]) -> None:
    """Two messages wait for `c`, which is away."""
    client = keep(harness)
    client.subscribe(*filters)
    client.disconnect()
    publisher = harness.join("p", username="acme/dev2")
    for packet_id in (1, 2):
        publisher.publish("a", b"x", 1, packet_id)
    publisher.disconnect()


def test_messages_of_a_session_that_expires_are_counted(harness: Harness) -> None:
    """Nothing is dropped without a name."""
    sleeper_with_messages(harness, ("a", 1))

    harness.pass_time(100)

    assert harness.acme.plane.counters.drops()["session_ended"] == 2


def test_messages_of_a_session_that_an_operator_discards_are_counted_as_purged(harness: Harness) -> None:
    sleeper_with_messages(harness, ("a", 1))

    assert now(harness.sessions.discard(harness.acme, "c", "operator"))

    drops = harness.acme.plane.counters.drops()
    assert (drops["purged"], drops["session_ended"]) == (2, 0)


def test_messages_that_went_to_another_member_are_not_lost(harness: Harness) -> None:
    """A shared group redistributes what its member did not acknowledge [MQTT-4.8.2-4]."""
    sleeper_with_messages(harness, SHARED)
    successor = harness.join("successor", username="acme/dev2")
    successor.subscribe(SHARED)

    harness.pass_time(100)

    assert payloads(successor) == [b"x", b"x"]
    assert harness.acme.plane.counters.drops()["session_ended"] == 0


def end_session(harness: Harness, how: str) -> None:
    if how == "expired":
        harness.pass_time(100)
    else:
        assert now(harness.sessions.discard(harness.acme, "c", "operator"))


def test_messages_are_redistributed_once_while_the_log_is_not_available(harness: Harness) -> None:
    """The end of the session is tried every few seconds."""
    sleeper_with_messages(harness, SHARED)
    successor = harness.join("successor", username="acme/dev2")
    successor.subscribe(SHARED)
    harness.journal.is_down = True
    for _ in range(5):
        harness.pass_time(100)
    harness.journal.is_down = False

    harness.pass_time(endings.RETRY_S)

    assert payloads(successor) == [b"x"] * 2
    assert "c" not in harness.acme.plane.sessions
    assert harness.acme.plane.counters.drops()["session_ended"] == 0


def test_messages_without_another_member_are_dropped_and_counted_once(harness: Harness) -> None:
    """A member that joins after the attempt gets none of them."""
    sleeper_with_messages(harness, SHARED)
    harness.journal.is_down = True
    for _ in range(3):
        harness.pass_time(100)
    late = harness.join("late", username="acme/dev2")
    late.subscribe(SHARED)
    harness.journal.is_down = False

    harness.pass_time(endings.RETRY_S)

    assert harness.acme.plane.counters.drops()["session_ended"] == 2
    assert payloads(late) == []


def test_sessions_that_cannot_end_do_not_pass_copies_to_each_other(harness: Harness) -> None:
    """Both have expired, and the log is not available for long."""
    sleeper_with_messages(harness, SHARED)
    other = keep(harness, "d")
    other.subscribe(SHARED)
    other.disconnect()
    harness.journal.is_down = True
    for _ in range(20):
        harness.pass_time(100)
    sizes = [len(harness.store.queue(harness.session(name).queue_id).records) for name in "cd"]
    harness.journal.is_down = False

    harness.pass_time(endings.RETRY_S)

    assert sizes == [2, 2]  # once, at the moment when the first of them expired
    assert harness.acme.plane.counters.drops()["session_ended"] == 2


def test_session_that_no_store_will_ever_take_can_be_ended(harness: Harness) -> None:
    sleeper_with_messages(harness, SHARED)
    successor = harness.join("successor", version=4, clean=False, username="acme/dev2")
    successor.subscribe(SHARED)
    successor.disconnect()
    harness.store.fails, harness.store.fails_for_good = False, True

    harness.ask("c", clean=True)

    assert harness.acme.plane.counters.drops()["store_failed"] == 2


def test_end_of_a_session_that_another_hub_has_claimed_is_tried_again(harness: Harness) -> None:
    """Between our claim and our reading; it expires later, if that hub does not keep it."""
    sleeper_with_messages(harness, SHARED)
    load = harness.queues.load
    harness.queues.load = _stale  # type: ignore[method-assign]
    harness.pass_time(100)
    harness.queues.load = load  # type: ignore[method-assign]
    assert "c" in harness.acme.plane.sessions

    harness.pass_time(endings.RETRY_S)

    assert "c" not in harness.acme.plane.sessions


async def _stale(_queue_id: int, _epoch: int, _after: int) -> Any:
    raise StaleEpochError("epoch 2, asked with 1")


def test_client_that_comes_back_keeps_what_it_has(harness: Harness) -> None:
    """What it does not acknowledge is redistributed when its session expires anew."""
    sleeper_with_messages(harness, SHARED)
    harness.journal.is_down = True
    harness.pass_time(100)
    harness.journal.is_down = False
    client = keep(harness)
    assert client.connack.session_present
    client.drop()
    successor = harness.join("successor", username="acme/dev2")
    successor.subscribe(SHARED)

    harness.pass_time(100)

    assert payloads(successor) == [b"x"] * 2


@pytest.mark.parametrize("silent", ["queues", "journal"])
def test_session_that_could_not_be_ended_is_in_no_shared_group_until_its_client_comes_back(
    harness: Harness, silent: str
) -> None:
    """What is published meanwhile is for the other members."""
    sleeper_with_messages(harness, SHARED)
    harness.queues.is_silent = silent == "queues"
    harness.journal.is_down = silent == "journal"
    harness.pass_time(100)
    harness.queues.is_silent = harness.journal.is_down = False
    publisher = harness.join("p", username="acme/dev2")
    publisher.publish("a", b"meanwhile", 1, 9)
    assert harness.acme.plane.counters.drops()["no_subscribers"] == 1

    client = keep(harness)
    publisher.publish("a", b"new", 1, 10)

    assert client.connack.session_present
    assert payloads(client) == [b"x", b"x", b"new"]


def test_only_so_many_sessions_end_at_a_time(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others wait for their turn; all end."""
    monkeypatch.setattr(endings, "ENDING", 2)
    for name in "abc":
        keep(harness, name).disconnect()
    harness.journal.is_held = True
    harness.pass_time(101)
    waiting = len(harness.journal.waiting)
    harness.journal.release()
    harness.pass_time(1)

    assert waiting == 2
    assert list(harness.acme.plane.sessions) == []
