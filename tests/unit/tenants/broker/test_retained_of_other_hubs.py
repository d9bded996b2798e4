"""One tenant's retained messages while other hubs write to the same store: what they tell is taken, and they are asked before a replay."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from iothub.base.errors import BackendError
from iothub.engine.message import Message
from iothub.records.message import StoredMessage, encode_message
from iothub.testing.engine import publish
from iothub_services.quota.names import Quota
from iothub_services.retained.port import RetainedTopic, RetainedWrite
from iothub_tenants.broker.retaining import _UNKNOWN_ARRIVALS
from tests.support.in_process.control_harness import now
from tests.support.in_process.retained_harness import TENANT, Harness


class Others:
    """Fulfils `PeerRetained`: two hubs, whose answers come when the test says so."""

    def __init__(self) -> None:
        self.is_there = True
        self.open: list[int] = []
        self.told: list[tuple[bytes, int, int]] = []
        self.asked: list[tuple[Callable[[Hashable], None], Callable[[], None]]] = []

    def open_tenant(self, tenant_id: int, here: Any) -> None:
        del here
        self.open.append(tenant_id)

    def close_tenant(self, tenant_id: int) -> None:
        self.open.remove(tenant_id)

    def has_open(self, tenant_id: int) -> bool:
        assert tenant_id == TENANT
        return self.is_there

    def announce_change(self, tenant_id: int, topic: bytes, version: int, expires_at_ms: int, size: int) -> None:
        assert (tenant_id, expires_at_ms) == (TENANT, 0)
        self.told.append((topic, version, size))

    def await_synced(self, tenant_id: int, on_asked: Callable[[Hashable], None], on_done: Callable[[], None]) -> bool:
        assert tenant_id == TENANT
        if self.is_there:
            self.asked.append((on_asked, on_done))
        return self.is_there

    def part(self, hub: str) -> None:
        """The first answer of a hub to all that was asked."""
        for on_asked, _ in self.asked:
            on_asked(hub)

    def answer(self) -> None:
        """The last answer of all hubs."""
        asked, self.asked = self.asked, []
        for _, on_done in asked:
            on_done()


@pytest.fixture
def others() -> Others:
    return Others()


def made(others: Others, count: int = 0) -> Harness:
    return Harness(count, peers=others)


def store(harness: Harness, topic: bytes, payload: bytes) -> tuple[int, int]:
    """Another hub writes; return the version and the size that it will tell."""
    body = encode_message(StoredMessage(topic, payload, 0, True, b"", 0, b"", "p")) if payload else None
    (version,) = harness.bodies.store.put([RetainedWrite(TENANT, topic, body)])
    return version, len(body or b"")


def write(harness: Harness, topic: bytes, payload: bytes) -> None:
    """Another hub writes, and tells it."""
    version, size = store(harness, topic, payload)
    harness.retaining.take_change(topic, version, 0, size)


def arrive(harness: Harness, source: str, topic: bytes, payload: bytes) -> None:
    """A retained message comes from another hub, and goes to whoever has subscribed."""
    harness.bench.plane.publish_arrived(harness.bench.tenant, [Message(topic, payload, 0, True)])
    harness.bench.plane.end_batch()
    harness.retaining.note_arrival(source, topic)


# --- what is told


def test_writes_of_this_hub_are_told(others: Others) -> None:
    """New messages, deletions, and what an operator deletes."""
    harness = made(others)
    harness.retain(b"a", b"x")
    harness.retain(b"b", b"x")
    harness.retain(b"a", b"")

    for _ in range(2):
        now(harness.retaining.delete(b"b"))

    sizes = [(topic, version, size > 0) for topic, version, size in others.told]
    assert sizes == [(b"a", 1, True), (b"b", 2, True), (b"a", 3, False), (b"b", 2, False)]


def test_what_has_expired_is_told(others: Others) -> None:
    """A message that another hub has written meanwhile has another time, and stays."""
    harness = made(others)
    harness.retaining.take_change(b"r/old", 1, 1, 9)
    harness.retaining.take_change(b"r/new", 2, 1, 9)
    harness.retaining.take_change(b"r/new", 3, 0, 9)

    harness.retaining.expired(b"r/old")
    harness.retaining.expired(b"r/new")

    assert others.told == [(b"r/old", 1, 0)]
    assert harness.ledger.used(Quota.RETAINED_MESSAGES) == 1


@pytest.mark.parametrize("is_after", [True, False])
def test_what_comes_while_an_operator_deletes_stays_if_the_store_has_it(others: Others, is_after: bool) -> None:
    """Another hub's write, told before the store has answered, may have come before the deletion or after it."""
    harness = made(others)
    write(harness, b"r/1", b"old")
    write(harness, b"r/2", b"old")
    others.told.clear()
    delete = harness.bodies.delete

    async def deleted(tenant_id: int, topics: Iterable[bytes]) -> int:
        asked = list(topics)
        if is_after:
            count = await delete(tenant_id, asked)
            write(harness, b"r/1", b"new")
        else:
            write(harness, b"r/1", b"new")
            count = await delete(tenant_id, asked)
        return count

    harness.bodies.delete = deleted  # type: ignore[method-assign]
    now(harness.retaining.delete(b"r/#"))

    harness.subscribe()
    others.answer()
    assert harness.taken(2.0) == ([(b"r/1", b"new")] if is_after else [])
    assert [(topic, size) for topic, _, size in others.told] == [(b"r/2", 0)] + [(b"r/1", 0)] * (not is_after)


def test_what_another_hub_wrote_is_replayed_and_counted(others: Others) -> None:
    harness = made(others)
    write(harness, b"r/1", b"one")
    write(harness, b"r/1", b"two")
    write(harness, b"r/2", b"deleted")
    write(harness, b"r/2", b"")

    harness.subscribe()
    others.answer()

    assert harness.taken(2.0) == [(b"r/1", b"two")]
    assert harness.ledger.used(Quota.RETAINED_MESSAGES) == 1
    assert others.told == []


def test_changes_that_come_late_do_no_harm(others: Others) -> None:
    """The higher version holds, whoever tells it first; one that is not there any more goes when its body is asked for."""
    harness = made(others)
    put = store(harness, b"r/1", b"one")
    deleted = store(harness, b"r/1", b"")
    kept = store(harness, b"r/2", b"two")
    for topic, (version, size) in ((b"r/2", kept), (b"r/2", put), (b"r/1", deleted), (b"r/1", put)):
        harness.retaining.take_change(topic, version, 0, size)
    assert harness.ledger.used(Quota.RETAINED_MESSAGES) == 2

    harness.subscribe()
    others.answer()

    assert harness.taken(2.0) == [(b"r/2", b"two")]
    assert harness.ledger.used(Quota.RETAINED_MESSAGES) == 1


def test_a_reservation_outlasts_what_others_write_meanwhile(others: Others) -> None:
    """A write of this hub is counted when it is done."""
    harness = made(others)
    harness.ask_to_retain(b"t", b"x" * 500)
    for payload in (b"elsewhere", b""):
        write(harness, b"t", payload)
    assert harness.ledger.used(Quota.RETAINED_BYTES) == 500

    harness.bodies.commit()

    assert harness.ledger.used(Quota.RETAINED_BYTES) > 500


def test_a_topic_is_there_while_a_write_of_it_is_on_its_way(others: Others) -> None:
    """Also when an earlier deletion is done meanwhile: who subscribes now waits for it."""
    others.is_there = False
    harness = made(others)
    for payload in (b"old", b"", b"new"):
        harness.ask_to_retain(b"r/1", payload)

    harness.bodies.commit(2)
    assert harness.retaining.may_have_any
    harness.subscribe()
    harness.bodies.commit()

    assert harness.taken(2.0) == [(b"r/1", b"new")]


def test_the_broker_hears_what_is_told_before_it_reads_the_store(others: Others) -> None:
    harness = made(others)
    Deferred.fromCoroutine(harness.retaining.load())
    assert others.open == [TENANT]

    harness.retaining.close()
    assert others.open == []


# --- what is asked


def test_a_replay_waits_for_the_other_hubs(others: Others) -> None:
    """They are asked when the subscription is active, not later."""
    harness = made(others, 1)
    harness.subscribe()
    write(harness, b"r/1", b"on its way")
    assert len(others.asked) == 1
    assert harness.taken(1.0) == []

    others.answer()

    assert sorted(harness.taken(2.0)) == [(b"r/0", b"x"), (b"r/1", b"on its way")]


def test_a_tenant_without_messages_here_asks_as_well(others: Others) -> None:
    """Another hub may have some; without one there is nothing to ask."""
    harness = made(others)
    assert harness.retaining.may_have_any
    others.is_there = False

    assert not harness.retaining.may_have_any


@pytest.mark.parametrize("is_durable", [True, False])
def test_what_a_hub_routed_after_it_was_asked_is_not_replayed(others: Others, is_durable: bool) -> None:
    """It came live: nothing older follows, and it does not come again."""
    harness = made(others, 1)
    harness.subscribe()
    others.part("two")
    arrive(harness, "two", b"r/0", b"new")
    if is_durable:
        write(harness, b"r/0", b"new")
    others.answer()

    assert harness.taken(2.0) == [(b"r/0", b"new")]


def test_what_a_hub_routed_before_it_was_asked_is_in_the_snapshot(others: Others) -> None:
    """It may be older than what a third hub has written: the store knows."""
    harness = made(others, 1)
    harness.subscribe()
    arrive(harness, "two", b"r/0", b"older")
    others.part("two")
    write(harness, b"r/0", b"older")
    write(harness, b"r/0", b"of three")
    others.answer()

    assert harness.taken(2.0) == [(b"r/0", b"older"), (b"r/0", b"of three")]


def test_what_came_before_an_earlier_replay_ended_does_not_hold_back_a_later_one(others: Others) -> None:
    """Each has its own beginning, for each hub."""
    harness = made(others, 1)
    harness.bodies.is_held = True
    harness.subscribe(b"r/#")
    others.part("two")
    arrive(harness, "two", b"r/0", b"new")
    others.answer()
    harness.subscribe(b"r/+")
    write(harness, b"r/0", b"new")
    others.part("two")
    others.answer()
    harness.bodies.release()

    assert harness.received(2.0) == [(b"r/0", b"new", False), (b"r/0", b"new", True)]


@pytest.mark.parametrize("payload", [b"newer", b""])
def test_what_another_hub_writes_after_the_page_was_read_is_not_overtaken(others: Others, payload: bytes) -> None:
    """To a session whose messages come through a queue it comes that way: what was read is too old for it."""
    harness = made(others, 1)
    harness.bodies.is_held = True
    harness.subscribe()
    others.answer()
    write(harness, b"r/0", payload)
    harness.bodies.release()

    assert harness.taken(2.0) == []


def test_arrivals_are_remembered_while_replays_run_and_within_a_bound(others: Others) -> None:
    """Topics that are not retained are forgotten first."""
    harness = made(others, 1)
    harness.retaining.note_arrival("two", b"r/0")
    assert harness.retaining._arrived == {}

    harness.subscribe()
    others.part("two")
    harness.retaining.note_arrival("two", b"r/0")
    for number in range(2 * _UNKNOWN_ARRIVALS):
        harness.retaining.note_arrival("two", b"unknown/%d" % number)
        assert len(harness.retaining._arrived) <= _UNKNOWN_ARRIVALS + 2
    others.answer()

    assert harness.taken(2.0) == []
    harness.retaining.note_arrival("two", b"r/0")
    assert harness.retaining._arrived == {}


# --- what was not told


def test_what_was_not_told_is_read_before_the_next_replay(others: Others) -> None:
    """Once, whoever waits for it; a tenant that seems to have nothing asks all the same."""
    others.is_there = False
    harness = made(others)
    store(harness, b"r/1", b"unannounced")
    reads = counted_loads(harness)
    assert not harness.retaining.may_have_any

    harness.retaining.note_unannounced()
    assert harness.retaining.may_have_any
    harness.subscribe(b"r/#")
    harness.subscribe(b"r/+")
    harness.subscribe(b"r/1")

    assert harness.taken(2.0) == [(b"r/1", b"unannounced")] * 3
    assert reads == [TENANT]
    assert harness.ledger.used(Quota.RETAINED_MESSAGES) == 1


def test_what_the_store_has_of_a_hub_that_is_gone_holds_no_replay_back(others: Others) -> None:
    """Nobody announces it, and it never comes live: who has subscribed before it was found gets what was retained then."""
    harness = made(others, 1)
    harness.bodies.is_held = True
    harness.subscribe(b"r/#")
    others.answer()
    store(harness, b"r/0", b"of a hub that is gone")
    harness.retaining.note_unannounced()
    second = harness.bench.client("t")
    harness.retaining.begin_replays(second.session, [second.subscribe(b"r/+")])
    others.answer()
    harness.bodies.release()

    assert harness.taken(2.0) == [(b"r/0", b"x")]


def test_what_was_found_in_the_store_and_announced_then_is_not_overtaken(others: Others) -> None:
    """Its hub is there: to a session whose messages come through a queue it comes that way."""
    harness = made(others, 1)
    harness.bodies.is_held = True
    harness.subscribe(b"r/#")
    others.answer()
    version, size = store(harness, b"r/0", b"new")
    harness.retaining.note_unannounced()
    second = harness.bench.client("t")
    harness.retaining.begin_replays(second.session, [second.subscribe(b"r/+")])
    others.answer()
    harness.retaining.take_change(b"r/0", version, 0, size)
    harness.bodies.release()

    assert harness.taken(2.0) == []


def test_who_comes_while_the_store_is_read_waits_for_it(others: Others) -> None:
    """The index may still be empty then."""
    others.is_there = False
    harness = made(others)
    store(harness, b"r/1", b"unannounced")
    harness.retaining.note_unannounced()
    held: list[Any] = []
    loads = counted_loads(harness, held)

    harness.subscribe(b"r/#")
    assert harness.retaining.may_have_any
    harness.subscribe(b"r/+")
    held.pop().callback(None)

    assert harness.taken(2.0) == [(b"r/1", b"unannounced")] * 2
    assert loads == [TENANT]


def test_who_waits_for_a_read_is_not_woken_by_the_end_of_one_that_is_collected(others: Others) -> None:
    """The collector ends coroutines in any order: one that has ended cannot go on."""
    others.is_there = False
    harness = made(others)
    counted_loads(harness, [])
    harness.retaining.note_unannounced()
    synced: Deferred[None] = Deferred()
    synced.callback(None)
    waiting = [harness.retaining._settle(synced) for _ in range(2)]
    ended: list[object] = []
    for each in waiting:
        Deferred.fromCoroutine(each).addBoth(ended.append)

    for each in reversed(waiting):
        each.close()

    assert ended == []


def test_a_store_that_cannot_be_read_is_read_by_the_next_replay(others: Others) -> None:
    """Whoever asked hears of it."""
    others.is_there = False
    harness = made(others)
    store(harness, b"r/1", b"unannounced")
    harness.retaining.note_unannounced()
    load, harness.bodies.load = harness.bodies.load, failing  # type: ignore[method-assign]
    harness.subscribe()
    [failure] = harness.ended
    assert isinstance(failure.value, BackendError)  # type: ignore[attr-defined]

    harness.bodies.load = load  # type: ignore[method-assign]
    harness.subscribe()

    assert harness.taken(2.0) == [(b"r/1", b"unannounced")]


def test_who_is_asked_answers_when_its_writes_are_durable(others: Others) -> None:
    """Those that were asked for before, or when the store has given up."""
    harness = made(others)
    answers: list[bool] = []
    harness.bench.client("other").send(publish(b"t", b"x"))
    harness.ask_to_retain(b"t", b"x")
    harness.retaining.await_settled(lambda: answers.append(True))
    assert answers == []
    harness.bodies.commit()
    assert answers == [True]

    harness.bodies.settle = failing  # type: ignore[method-assign]
    harness.ask_to_retain(b"t", b"y")
    harness.retaining.await_settled(lambda: answers.append(True))
    assert answers == [True, True]


def test_who_is_asked_answers_at_once_while_none_of_its_writes_is_on_its_way(others: Others) -> None:
    """In the turn of the question, so that both answers go together."""
    harness = made(others)
    asked: list[int] = []

    async def settle(tenant_id: int) -> None:
        asked.append(tenant_id)

    harness.bodies.settle = settle  # type: ignore[method-assign]
    harness.retain(b"t", b"x")
    answers: list[bool] = []
    harness.retaining.await_settled(lambda: answers.append(True))

    assert (answers, asked) == ([True], [])


def counted_loads(harness: Harness, held: list[Any] | None = None) -> list[int]:
    """Return the tenants that are read from the store from now on. `held`: gets what lets a read go on."""
    loads: list[int] = []
    load = harness.bodies.load

    async def counted(tenant_id: int) -> list[RetainedTopic]:
        loads.append(tenant_id)
        if held is not None:
            held.append(Deferred())
            await held[-1]
        return await load(tenant_id)

    harness.bodies.load = counted  # type: ignore[method-assign]
    return loads


async def failing(_tenant_id: int) -> Any:
    raise BackendError("HBase has not answered", retryable=True)
