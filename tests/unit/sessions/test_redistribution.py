"""Who gets the unacknowledged shared messages of a session that ends, and what a store that fails or another hub makes of that."""

from __future__ import annotations

from typing import Any

import pytest

from iothub.engine.state import Place
from iothub_services.queues.port import Claim, StaleEpochError
from iothub_services.sessions.endings import RETRY_S
from iothub_services.sessions.port import HERE, NEVER_EXPIRES
from tests.support.in_process.control_harness import Harness
from tests.support.in_process.kept_sessions import KEPT, payloads
from tests.unit.sessions.test_endings import SHARED, sleeper_with_messages

OTHER_HUB = 7


def held_for(harness: Harness, client_id: str) -> list[bytes]:
    rows = harness.store.queue(harness.session(client_id).queue_id)
    return [record.message.payload for _, record in sorted(rows.records.items())]


def away(harness: Harness, client_id: str, *filters: tuple[str, int]) -> None:
    """A member that is offline, for longer than any test takes."""
    client = harness.join(client_id, version=4, clean=False, username="acme/dev2")
    client.subscribe(*filters)
    client.disconnect()


def is_in_its_group(harness: Harness) -> bool:
    return bool(harness.acme.plane.router.match(b"a").groups)


def leave_to_another_hub(harness: Harness) -> None:
    """As its event is heard: that one has claimed the queue."""
    session = harness.session("c")
    session.epoch = harness.store.claim(session.queue_id).epoch
    session.control.expiry_s = NEVER_EXPIRES
    harness.sessions.leave_to(session, OTHER_HUB)


def test_persistent_member_is_chosen_before_one_that_is_online(harness: Harness) -> None:
    """What a store had stays in a store."""
    sleeper_with_messages(harness, SHARED)
    away(harness, "successor", SHARED)
    online = harness.join("online", username="acme/dev2")
    online.subscribe(SHARED)

    harness.pass_time(100)

    assert held_for(harness, "successor") == [b"x"] * 2
    assert payloads(online) == []


def test_end_of_a_session_is_tried_again_when_the_store_of_another_member_failed(harness: Harness) -> None:
    """All of it is redistributed then."""
    sleeper_with_messages(harness, SHARED)
    away(harness, "successor", SHARED)
    harness.store.fails = False
    harness.pass_time(100)
    assert "c" in harness.acme.plane.sessions

    harness.store.fails = None
    harness.pass_time(RETRY_S)

    assert "c" not in harness.acme.plane.sessions
    assert held_for(harness, "successor") == [b"x"] * 2
    assert harness.acme.plane.counters.drops()["session_ended"] == 0


def test_client_that_tries_to_come_back_multiplies_nothing(harness: Harness) -> None:
    """Its CONNECT is refused while the log is not available: what was redistributed before stays so."""
    sleeper_with_messages(harness, SHARED)
    away(harness, "successor", SHARED)
    harness.journal.is_down = True
    harness.pass_time(100)

    for _ in range(5):
        harness.ask("c", props=KEPT, clean=False)
        harness.pass_time(RETRY_S)

    assert held_for(harness, "successor") == [b"x"] * 2


def test_deadline_of_a_session_that_another_hub_resumed_does_not_come_back(harness: Harness) -> None:
    """Between our claim and our reading; that hub's word counts, also when it dies."""
    sleeper_with_messages(harness, SHARED)
    session = harness.session("c")
    session.control.place = Place(HERE, session.epoch)
    load = harness.queues.load

    async def stale(_queue_id: int, _epoch: int, _after: int) -> Any:
        leave_to_another_hub(harness)
        raise StaleEpochError("epoch 2, asked with 1")

    harness.queues.load = stale  # type: ignore[method-assign]
    harness.pass_time(100)
    harness.queues.load = load  # type: ignore[method-assign]
    harness.sessions.hold(harness.acme, session)
    harness.pass_time(1000)

    assert "c" in harness.acme.plane.sessions
    assert is_in_its_group(harness)


class Cluster:
    """Other hubs are there; they have nothing to say."""

    is_alone = False

    def place(self, epoch: int) -> Place:
        return Place(HERE, epoch)

    async def catch_up(self, ago_s: float = 0.0) -> None:
        return


@pytest.mark.parametrize("when", ["the Will is sent", "the queue is claimed"])
def test_session_that_comes_to_another_hub_is_not_ended_here(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """While its end begins: its client is there."""
    sleeper_with_messages(harness, SHARED)
    session = harness.session("c")
    session.control.place = Place(HERE, session.epoch)
    endings = harness.sessions._endings
    monkeypatch.setattr(endings, "_cluster", Cluster())
    claim = harness.queues.claim

    async def settled(_session: Any) -> None:
        leave_to_another_hub(harness)

    async def late(queue_id: int, owner: bytes) -> Claim:
        if not session.control.is_elsewhere:
            leave_to_another_hub(harness)
        return await claim(queue_id, owner)

    if when == "the Will is sent":
        monkeypatch.setattr(endings._wills, "settled", settled)
    else:
        monkeypatch.setattr(harness.queues, "claim", late)
    harness.journal.words()

    harness.pass_time(100)

    assert harness.journal.words() == []
    assert is_in_its_group(harness)
    assert session.control.expires_at == 0.0


def test_member_has_left_its_groups_before_its_queue_is_claimed(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else what is published while the claim is at work lands behind the last page that is read, and is dropped with the queue."""
    sleeper_with_messages(harness, SHARED)
    session = harness.session("c")
    session.control.place = Place(HERE, session.epoch)
    monkeypatch.setattr(harness.sessions._endings, "_cluster", Cluster())
    claim = harness.queues.claim
    seen: list[bool] = []

    async def watched(queue_id: int, owner: bytes) -> Claim:
        seen.append(is_in_its_group(harness))
        return await claim(queue_id, owner)

    monkeypatch.setattr(harness.queues, "claim", watched)

    harness.pass_time(100)

    assert seen == [False]
    assert "c" not in harness.acme.plane.sessions


def test_end_that_the_log_did_not_take_is_tried_again_beside_other_hubs(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The claim of the first attempt is this hub's own: the second one ends the session."""
    sleeper_with_messages(harness, SHARED)
    session = harness.session("c")
    session.control.place = Place(HERE, session.epoch)
    monkeypatch.setattr(harness.sessions._endings, "_cluster", Cluster())
    harness.journal.is_down = True
    harness.pass_time(100)
    harness.journal.is_down = False

    harness.pass_time(RETRY_S)

    assert "c" not in harness.acme.plane.sessions
