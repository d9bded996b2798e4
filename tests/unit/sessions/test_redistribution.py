"""Who gets the unacknowledged shared messages of a session that ends, and what a store that fails or another hub makes of that."""

from __future__ import annotations

from typing import Any

import pytest

from iothub_services.queues.port import Claim, StaleEpochError
from iothub_services.sessions.endings import RETRY_S
from iothub_services.sessions.port import HERE, NEVER_EXPIRES, Place
from tests.support.control_house import House
from tests.support.kept_sessions import KEPT, payloads
from tests.unit.sessions.test_endings import SHARED, sleeper_with_messages

OTHER_HUB = 7


def held_for(house: House, client_id: str) -> list[bytes]:
    rows = house.store.queue(house.session(client_id).queue_id)
    return [record.message.payload for _, record in sorted(rows.records.items())]


def away(house: House, client_id: str, *filters: tuple[str, int]) -> None:
    """A member that is offline, for longer than any test takes."""
    guest = house.join(client_id, version=4, clean=False, username="acme/dev2")
    guest.subscribe(*filters)
    guest.disconnect()


def is_in_its_group(house: House) -> bool:
    return bool(house.acme.plane.router.match(b"a").groups)


def leave_to_another_hub(house: House) -> None:
    """As its event is heard: that one has claimed the queue."""
    session = house.session("c")
    session.epoch = house.store.claim(session.queue_id).epoch
    session.control.expiry_s = NEVER_EXPIRES
    house.sessions.leave_to(session, OTHER_HUB)


def test_persistent_member_is_chosen_before_one_that_is_online(house: House) -> None:
    """What a store had stays in a store."""
    sleeper_with_messages(house, SHARED)
    away(house, "successor", SHARED)
    online = house.join("online", username="acme/dev2")
    online.subscribe(SHARED)

    house.pass_time(100)

    assert held_for(house, "successor") == [b"x"] * 2
    assert payloads(online) == []


def test_end_of_a_session_is_tried_again_when_the_store_of_another_member_failed(house: House) -> None:
    """All of it is redistributed then."""
    sleeper_with_messages(house, SHARED)
    away(house, "successor", SHARED)
    house.store.fails = False
    house.pass_time(100)
    assert "c" in house.acme.plane.sessions

    house.store.fails = None
    house.pass_time(RETRY_S)

    assert "c" not in house.acme.plane.sessions
    assert held_for(house, "successor") == [b"x"] * 2
    assert house.acme.plane.counters.drops()["session_ended"] == 0


def test_client_that_tries_to_come_back_multiplies_nothing(house: House) -> None:
    """Its CONNECT is refused while the log is not available: what was redistributed before stays so."""
    sleeper_with_messages(house, SHARED)
    away(house, "successor", SHARED)
    house.journal.is_down = True
    house.pass_time(100)

    for _ in range(5):
        house.ask("c", props=KEPT, clean=False)
        house.pass_time(RETRY_S)

    assert held_for(house, "successor") == [b"x"] * 2


def test_deadline_of_a_session_that_another_hub_resumed_does_not_come_back(house: House) -> None:
    """Between our claim and our reading; that hub's word counts, also when it dies."""
    sleeper_with_messages(house, SHARED)
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
    assert is_in_its_group(house)


class Cluster:
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
    sleeper_with_messages(house, SHARED)
    session = house.session("c")
    session.control.place = Place(HERE, session.epoch)
    endings = house.sessions._endings
    monkeypatch.setattr(endings, "_cluster", Cluster())
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
    assert is_in_its_group(house)
    assert session.control.expires_at == 0.0


def test_member_has_left_its_groups_before_its_queue_is_claimed(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else what is published while the claim is at work lands behind the last page that is read, and is dropped with the queue."""
    sleeper_with_messages(house, SHARED)
    session = house.session("c")
    session.control.place = Place(HERE, session.epoch)
    monkeypatch.setattr(house.sessions._endings, "_cluster", Cluster())
    claim = house.queues.claim
    seen: list[bool] = []

    async def watched(queue_id: int, owner: bytes) -> Claim:
        seen.append(is_in_its_group(house))
        return await claim(queue_id, owner)

    monkeypatch.setattr(house.queues, "claim", watched)

    house.pass_time(100)

    assert seen == [False]
    assert "c" not in house.acme.plane.sessions


def test_end_that_the_log_did_not_take_is_tried_again_beside_other_hubs(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The claim of the first attempt is this hub's own: the second one ends the session."""
    sleeper_with_messages(house, SHARED)
    session = house.session("c")
    session.control.place = Place(HERE, session.epoch)
    monkeypatch.setattr(house.sessions._endings, "_cluster", Cluster())
    house.journal.is_down = True
    house.pass_time(100)
    house.journal.is_down = False

    house.pass_time(RETRY_S)

    assert "c" not in house.acme.plane.sessions
