"""How sessions end: expiry, an operator's word, and what must be durable before."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.defer import Deferred

from iothub_services.queues.port import StaleEpochError
from iothub_services.quota.names import Quota
from iothub_services.sessions import endings
from tests.support import property_names as names
from tests.support.control_house import House, now
from tests.support.kept_sessions import KEPT, WILL, keen_on_wills, keep, payloads
from tests.support.party import Guest

SHARED = ("$share/g/a", 1)


def test_session_expires(house: House) -> None:
    """Its queue is dropped, its places are given back, the event is written."""
    guest = keep(house)
    guest.subscribe(("a", 1))
    guest.disconnect()
    house.pass_time(99)
    assert "c" in house.acme.plane.sessions
    house.journal.words()

    house.pass_time(1)

    assert "c" not in house.acme.plane.sessions
    assert house.queues.owners == {}
    assert house.journal.words() == ["session.expired"]
    assert (house.used(Quota.SESSIONS), house.used(Quota.SUBSCRIPTIONS)) == (0, 0)


def test_session_of_a_connected_client_does_not_expire(house: House) -> None:
    keep(house).disconnect()
    guest = keep(house)
    house.pass_time(200)

    assert "c" in house.acme.plane.sessions
    guest.ping()


def test_disconnect_changes_the_expiry(house: House) -> None:
    """§3.14.2.2.2."""
    keep(house).disconnect(0, props=[(names.SESSION_EXPIRY, 5)])
    house.pass_time(5)

    assert "c" not in house.acme.plane.sessions


def test_session_of_3_1_1_never_expires_by_itself(house: House) -> None:
    house.join(version=4, clean=False).disconnect()
    house.pass_time(10_000_000)

    assert house.join(version=4, clean=False).connack.session_present


def test_operator_discards_a_connected_session(house: House, watcher: Guest) -> None:
    """The client is told, its Will is sent, nothing is left; a second time there is nothing to discard."""
    guest = keep(house, will=WILL)

    assert now(house.sessions.discard(house.acme, "c", "operator"))
    house.settle()

    guest.expect_closed()
    assert "c" not in house.acme.plane.sessions
    assert house.queues.owners == {}
    assert payloads(watcher) == [b"gone"]
    assert not now(house.sessions.discard(house.acme, "c", "operator"))
    assert house.used(Quota.CONNECTIONS) == 1


def test_queue_without_a_session_is_dropped_when_the_store_lets_us(house: House) -> None:
    """A drop that fails is tried again, not forgotten."""
    house.journal.is_down = house.queues.is_down = True
    house.ask(props=KEPT)
    assert list(house.queues.owners) == [1]

    house.queues.is_down = False
    house.pass_time(0.2)

    assert house.queues.owners == {}


def test_session_whose_end_could_not_be_made_durable_ends_later(house: House) -> None:
    """It is neither forgotten nor kept for ever."""
    keep(house).disconnect()
    house.journal.is_down = True
    house.pass_time(100)
    assert "c" in house.acme.plane.sessions

    house.journal.is_down = False
    house.pass_time(endings.RETRY_S)

    assert "c" not in house.acme.plane.sessions
    assert house.used(Quota.SESSIONS) == 0


def test_end_of_a_session_waits_until_its_will_is_stored(house: House) -> None:
    """A hub that dies in between sends it at its next start: the log has the session and its Will [MQTT-3.1.2-8]."""
    keen_on_wills(house)
    keep(house, will=WILL, will_props=[(names.WILL_DELAY, 50)]).drop()
    house.journal.words()
    house.is_store_held = True
    answers: list[bool] = []
    Deferred.fromCoroutine(house.sessions.discard(house.acme, "c", "operator")).addCallback(answers.append)
    house.settle()
    assert (answers, house.journal.words(), house.sessions.wills_under_way) == ([], [], 1)

    house.is_store_held = False
    house.settle()

    assert (answers, house.sessions.wills_under_way) == ([True], 0)
    assert house.journal.words() == ["will.cleared", "session.discarded"]


def test_session_does_not_expire_before_the_will_that_has_just_fired_is_stored(house: House) -> None:
    """The Will is under way when the session's own time comes."""
    keen_on_wills(house)
    keep(house, will=WILL, will_props=[(names.WILL_DELAY, 99)]).drop()
    house.is_store_held = True
    house.pass_time(99.5)
    house.pass_time(1)
    assert "session.expired" not in house.journal.words()

    house.is_store_held = False
    house.settle()

    assert house.journal.words() == ["will.cleared", "session.expired"]


def test_log_that_does_not_answer_holds_up_no_will(house: House, watcher: Guest) -> None:
    """Sessions end beside one another."""
    keep(house, "slow").disconnect()
    keep(house, will=WILL, will_props=[(names.WILL_DELAY, 99)]).drop()
    house.pass_time(1)
    house.journal.is_held = True
    house.pass_time(99)

    assert payloads(watcher) == [b"gone"]
    assert sorted(house.acme.plane.sessions) == ["c", "slow", "watcher"]
    house.journal.release()
    assert sorted(house.acme.plane.sessions) == ["watcher"]


def sleeper_with_messages(house: House, *filters: tuple[str, int]) -> None:
    """Two messages wait for `c`, which is away."""
    guest = keep(house)
    guest.subscribe(*filters)
    guest.disconnect()
    publisher = house.join("p", username="acme/dev2")
    for packet_id in (1, 2):
        publisher.publish("a", b"x", 1, packet_id)
    publisher.disconnect()


def test_messages_of_a_session_that_expires_are_counted(house: House) -> None:
    """Nothing is dropped without a name."""
    sleeper_with_messages(house, ("a", 1))

    house.pass_time(100)

    assert house.acme.plane.counters.drops()["session_ended"] == 2


def test_messages_of_a_session_that_an_operator_discards_are_counted_as_purged(house: House) -> None:
    sleeper_with_messages(house, ("a", 1))

    assert now(house.sessions.discard(house.acme, "c", "operator"))

    drops = house.acme.plane.counters.drops()
    assert (drops["purged"], drops["session_ended"]) == (2, 0)


def test_messages_that_went_to_another_member_are_not_lost(house: House) -> None:
    """A shared group redistributes what its member did not acknowledge [MQTT-4.8.2-4]."""
    sleeper_with_messages(house, SHARED)
    successor = house.join("successor", username="acme/dev2")
    successor.subscribe(SHARED)

    house.pass_time(100)

    assert payloads(successor) == [b"x", b"x"]
    assert house.acme.plane.counters.drops()["session_ended"] == 0


def end_session(house: House, how: str) -> None:
    if how == "expired":
        house.pass_time(100)
    else:
        assert now(house.sessions.discard(house.acme, "c", "operator"))


def test_messages_are_redistributed_once_while_the_log_is_not_available(house: House) -> None:
    """The end of the session is tried every few seconds."""
    sleeper_with_messages(house, SHARED)
    successor = house.join("successor", username="acme/dev2")
    successor.subscribe(SHARED)
    house.journal.is_down = True
    for _ in range(5):
        house.pass_time(100)
    house.journal.is_down = False

    house.pass_time(endings.RETRY_S)

    assert payloads(successor) == [b"x"] * 2
    assert "c" not in house.acme.plane.sessions
    assert house.acme.plane.counters.drops()["session_ended"] == 0


def test_messages_without_another_member_are_dropped_and_counted_once(house: House) -> None:
    """A member that joins after the attempt gets none of them."""
    sleeper_with_messages(house, SHARED)
    house.journal.is_down = True
    for _ in range(3):
        house.pass_time(100)
    late = house.join("late", username="acme/dev2")
    late.subscribe(SHARED)
    house.journal.is_down = False

    house.pass_time(endings.RETRY_S)

    assert house.acme.plane.counters.drops()["session_ended"] == 2
    assert payloads(late) == []


def test_sessions_that_cannot_end_do_not_pass_copies_to_each_other(house: House) -> None:
    """Both have expired, and the log is not available for long."""
    sleeper_with_messages(house, SHARED)
    other = keep(house, "d")
    other.subscribe(SHARED)
    other.disconnect()
    house.journal.is_down = True
    for _ in range(20):
        house.pass_time(100)
    sizes = [len(house.store.queue(house.session(name).queue_id).records) for name in "cd"]
    house.journal.is_down = False

    house.pass_time(endings.RETRY_S)

    assert sizes == [2, 2]  # once, at the moment when the first of them expired
    assert house.acme.plane.counters.drops()["session_ended"] == 2


def test_session_that_no_store_will_ever_take_can_be_ended(house: House) -> None:
    sleeper_with_messages(house, SHARED)
    successor = house.join("successor", version=4, clean=False, username="acme/dev2")
    successor.subscribe(SHARED)
    successor.disconnect()
    house.store.fails, house.store.fails_for_good = False, True

    house.ask("c", clean=True)

    assert house.acme.plane.counters.drops()["store_failed"] == 2


def test_end_of_a_session_that_another_hub_has_claimed_is_tried_again(house: House) -> None:
    """Between our claim and our reading; it expires later, if that hub does not keep it."""
    sleeper_with_messages(house, SHARED)
    load = house.queues.load
    house.queues.load = _stale  # type: ignore[method-assign]
    house.pass_time(100)
    house.queues.load = load  # type: ignore[method-assign]
    assert "c" in house.acme.plane.sessions

    house.pass_time(endings.RETRY_S)

    assert "c" not in house.acme.plane.sessions


async def _stale(_queue_id: int, _epoch: int, _after: int) -> Any:
    raise StaleEpochError("epoch 2, asked with 1")


def test_client_that_comes_back_keeps_what_it_has(house: House) -> None:
    """What it does not acknowledge is redistributed when its session expires anew."""
    sleeper_with_messages(house, SHARED)
    house.journal.is_down = True
    house.pass_time(100)
    house.journal.is_down = False
    guest = keep(house)
    assert guest.connack.session_present
    guest.drop()
    successor = house.join("successor", username="acme/dev2")
    successor.subscribe(SHARED)

    house.pass_time(100)

    assert payloads(successor) == [b"x"] * 2


@pytest.mark.parametrize("silent", ["queues", "journal"])
def test_session_that_could_not_be_ended_is_in_no_shared_group_until_its_client_comes_back(
    house: House, silent: str
) -> None:
    """What is published meanwhile is for the other members."""
    sleeper_with_messages(house, SHARED)
    house.queues.is_silent = silent == "queues"
    house.journal.is_down = silent == "journal"
    house.pass_time(100)
    house.queues.is_silent = house.journal.is_down = False
    publisher = house.join("p", username="acme/dev2")
    publisher.publish("a", b"meanwhile", 1, 9)
    assert house.acme.plane.counters.drops()["no_subscribers"] == 1

    guest = keep(house)
    publisher.publish("a", b"new", 1, 10)

    assert guest.connack.session_present
    assert payloads(guest) == [b"x", b"x", b"new"]


def test_only_so_many_sessions_end_at_a_time(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others wait for their turn; all end."""
    monkeypatch.setattr(endings, "ENDING", 2)
    for name in "abc":
        keep(house, name).disconnect()
    house.journal.is_held = True
    house.pass_time(101)
    waiting = len(house.journal.waiting)
    house.journal.release()
    house.pass_time(1)

    assert waiting == 2
    assert list(house.acme.plane.sessions) == []
