"""What a session leaves to its shared groups while the log is silent, heirs cannot be read, or another hub takes it."""

from __future__ import annotations

from typing import Any

import pytest

from iothub_services.queues.port import Claim, StaleEpochError
from iothub_services.sessions.port import HERE, NEVER_EXPIRES, Place
from tests.support.control_house import House
from tests.support.kept_sessions import KEPT, keep, payloads
from tests.unit.sessions.test_endings import sleeper_with_messages

GROUP = ("$share/g/a", 1)
OTHER_HUB = 7


def held_for(house: House, client_id: str) -> list[bytes]:
    rows = house.store.queue(house.session(client_id).queue_id)
    return [record.message.payload for _, record in sorted(rows.records.items())]


def away(house: House, client_id: str, *filters: tuple[str, int]) -> None:
    """A member that is offline, for longer than any test takes."""
    guest = house.join(client_id, version=4, clean=False, username="acme/dev2")
    guest.subscribe(*filters)
    guest.disconnect()


def leave_to_another_hub(house: House) -> None:
    """As its event is heard: that one has claimed the queue."""
    session = house.session("c")
    session.epoch = house.store.claim(session.queue_id).epoch
    session.control.expiry_s = NEVER_EXPIRES
    house.sessions.leave_to(session, OTHER_HUB)


def test_client_that_tries_to_come_back_multiplies_nothing(house: House) -> None:
    """Its CONNECT is refused while the log is silent: what was handed on before stays so."""
    sleeper_with_messages(house, GROUP)
    away(house, "heir", GROUP)
    house.journal.is_down = True
    house.pass_time(100)

    for _ in range(5):
        house.ask("c", props=KEPT, clean=False)
        house.pass_time(1)

    assert held_for(house, "heir") == [b"x"] * 2


def test_heir_of_one_group_gets_what_it_missed_though_the_other_had_an_heir(house: House) -> None:
    """Each group has its copy."""
    sleeper_with_messages(house, GROUP, ("$share/h/#", 1))
    rows = house.store.queue(house.session("c").queue_id)
    for position, record in rows.records.items():
        record.message.message_id = b"%016d" % ((position + 1) // 2)
    away(house, "heir of g", GROUP)
    house.journal.is_down = True
    house.pass_time(100)
    heir = house.join("heir", username="acme/dev2")
    heir.subscribe(("$share/h/#", 1))
    house.journal.is_down = False

    house.pass_time(1)

    assert held_for(house, "heir of g") == [b"x"] * 2
    assert payloads(heir) == [b"x"] * 2
    assert house.acme.plane.counters.drops()["session_ended"] == 0


def test_what_came_after_the_first_attempt_finds_an_heir_too(house: House) -> None:
    sleeper_with_messages(house, GROUP)
    first = house.join("first", username="acme/dev2")
    first.subscribe(GROUP)
    house.journal.is_down = True
    house.pass_time(100)
    assert payloads(first) == [b"x"] * 2
    first.unsubscribe(GROUP[0])
    publisher = house.join("p", username="acme/dev2")
    publisher.publish("a", b"new", 1, 9)
    house.pass_time(1)
    heir = house.join("heir", username="acme/dev2")
    heir.subscribe(GROUP)

    house.journal.is_down = False
    house.pass_time(1)

    assert payloads(heir) == [b"new"]


def test_transient_member_leaves_to_one_whose_end_is_not_durable(house: House) -> None:
    """It passes nothing back, and its client may return."""
    sleeper_with_messages(house, GROUP)
    house.journal.is_down = True
    house.pass_time(100)
    transient = house.join("t", username="acme/dev2")
    transient.subscribe(GROUP)
    publisher = house.join("p", username="acme/dev2")
    publisher.publish("a", b"new", 1, 9)

    transient.disconnect()
    house.settle()

    assert held_for(house, "c")[-1:] == [b"new"]


@pytest.mark.parametrize("unreadable", ["m", "h"])
def test_heir_that_cannot_be_read_does_not_stand_before_one_that_can(house: House, unreadable: str) -> None:
    """Whichever the publisher's name would choose."""
    sleeper = keep(house)
    sleeper.subscribe(GROUP)
    sleeper.disconnect()
    for number in range(8):
        publisher = house.join(f"p{number}", username="acme/dev2")
        publisher.publish("a", b"x", 1, 1)
        publisher.disconnect()
    for name in "hm":
        away(house, name, GROUP)
    house.store.unreadable = {house.session(unreadable).queue_id}

    house.pass_time(100)

    assert "c" not in house.acme.plane.sessions
    assert len(held_for(house, "h" if unreadable == "m" else "m")) == 8


def test_what_waits_for_an_heir_is_not_counted_as_dropped(house: House) -> None:
    """It is tried every half minute."""
    sleeper_with_messages(house, GROUP)
    away(house, "h", GROUP)
    house.store.unreadable = {house.session("h").queue_id}

    for _ in range(5):
        house.pass_time(100)

    assert "c" in house.acme.plane.sessions
    assert house.acme.plane.counters.drops()["store_failed"] == 0


def test_deadline_of_a_session_that_another_hub_resumed_does_not_come_back(house: House) -> None:
    """Between our claim and our reading; that hub's word counts, also when it dies."""
    sleeper_with_messages(house, GROUP)
    session = house.session("c")
    session.control.place = Place(HERE, session.epoch)
    load = house.queues.load

    async def stale(_queue_id: int, _epoch: int, _after: int) -> Any:
        leave_to_another_hub(house)
        raise StaleEpochError("epoch 2, asked with 1")

    house.queues.load = stale  # type: ignore[method-assign]
    house.pass_time(100)
    house.queues.load = load  # type: ignore[method-assign]
    house.sessions.hold(house.acme, session)
    house.pass_time(1000)

    assert "c" in house.acme.plane.sessions
    assert not session.is_leaving


class Company:
    """Other hubs are there; they have nothing to say."""

    is_alone = False

    def place(self, epoch: int) -> Place:
        return Place(HERE, epoch)

    async def catch_up(self) -> None:
        return


@pytest.mark.parametrize("when", ["the Will is sent", "the queue is claimed"])
def test_session_that_comes_to_another_hub_is_not_ended_here(
    house: House, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """While its end begins: its client is there."""
    sleeper_with_messages(house, GROUP)
    session = house.session("c")
    session.control.place = Place(HERE, session.epoch)
    endings = house.sessions._endings
    monkeypatch.setattr(endings, "_company", Company())
    claim = house.queues.claim

    async def settled(_session: Any) -> None:
        leave_to_another_hub(house)

    async def late(queue_id: int, owner: bytes) -> Claim:
        if not session.control.is_elsewhere:
            leave_to_another_hub(house)
        return await claim(queue_id, owner)

    if when == "the Will is sent":
        monkeypatch.setattr(endings._wills, "settled", settled)
    else:
        monkeypatch.setattr(house.queues, "claim", late)
    house.journal.words()

    house.pass_time(100)

    assert house.journal.words() == []
    assert not session.is_leaving
    assert session.control.expires_at == 0.0


def test_member_that_joins_while_the_end_is_on_its_way_to_the_log_inherits(house: House) -> None:
    """By the log it was there before."""
    sleeper_with_messages(house, GROUP)
    heir = house.join("heir", username="acme/dev2")
    house.journal.is_held = True
    house.pass_time(100)
    heir.subscribe(GROUP)

    house.journal.release()
    house.pass_time(1)

    assert "c" not in house.acme.plane.sessions
    assert payloads(heir) == [b"x"] * 2
    assert house.acme.plane.counters.drops()["session_ended"] == 0
