"""Retained messages in memory: what was replayed lately is not read again, and nothing that is not retained any more is found there."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.defer import Deferred

from iothub.base.errors import BackendError
from iothub.engine.message import Message
from iothub.testing.engine import packets
from iothub_services.auth.port import TenantRecord
from iothub_services.retained.index import RetainedEntry
from iothub_services.retained.port import RetainedWrite
from iothub_tenants.broker.kept_messages import PLACE_BYTES, KeptMessages
from iothub_tenants.broker.peer_retained import OnAsked, OnDone, PeerRetained
from iothub_tenants.broker.retaining import SLICE
from tests.support.in_process.control_harness import Harness as ControlHarness
from tests.support.in_process.control_harness import now
from tests.support.in_process.retained_harness import TENANT, Harness

ONE = Message(b"t", bytes(100))
SIZE = ONE.size + PLACE_BYTES


def entry() -> RetainedEntry:
    return RetainedEntry(b"t", 1, 0, 100)


def test_message_is_found_where_it_was_put_until_it_is_forgotten() -> None:
    """Forgetting what is not there is nothing."""
    kept = KeptMessages()
    one, other = entry(), entry()
    kept.put(one, ONE)
    assert (one.message, other.message) == (ONE, None)

    for each in (one, one, other):
        kept.forget(each)

    assert (one.message, kept.size_bytes) == (None, 0)


def test_first_that_came_goes_first() -> None:
    """As soon as they have more bytes than they may; what is put again counts once, as the last one."""
    kept = KeptMessages(2 * SIZE)
    entries = [entry() for _ in range(3)]
    first, second, third = entries

    for each in (first, second, first, third):
        kept.put(each, ONE)

    assert [each.message for each in entries] == [ONE, None, ONE]
    assert kept.size_bytes == 2 * SIZE


def test_message_above_the_bound_is_not_kept() -> None:
    kept = KeptMessages(SIZE - 1)
    one = entry()
    kept.put(one, ONE)

    assert (one.message, kept.size_bytes) == (None, 0)


def test_brokers_of_all_tenants_have_one_bound(harness: ControlHarness) -> None:
    other = now(harness.hub.brokers.broker(TenantRecord(8, "other")))

    assert harness.acme.retained._kept is other.retained._kept


def test_second_subscriber_is_sent_what_the_first_one_got() -> None:
    """Nothing is read, and the frames are those of the first one."""
    harness = Harness(2 * SLICE)
    harness.subscribe()
    first = harness.taken()
    harness.subscribe()

    assert harness.taken() == first
    assert harness.bodies.read == 2 * SLICE


def test_message_that_was_replaced_is_read_again() -> None:
    harness = Harness(3)
    harness.subscribe()
    harness.taken()
    harness.retain(b"r/1", b"new")
    harness.taken()

    harness.subscribe()

    assert sorted(harness.taken()) == [(b"r/0", b"x"), (b"r/1", b"new"), (b"r/2", b"x")]


def test_message_that_was_deleted_is_not_replayed() -> None:
    harness = Harness(2)
    harness.subscribe()
    harness.taken()
    harness.retain(b"r/1", b"")
    harness.taken()

    harness.subscribe()

    assert harness.taken() == [(b"r/0", b"x")]


@pytest.mark.parametrize("payload", [b"new", b""])
def test_what_another_hub_could_not_announce_is_looked_for_in_the_store(payload: bytes) -> None:
    """Also what it has deleted: the index does not say so."""
    harness = Harness(2, peers=OtherHubs())
    harness.subscribe()
    harness.taken()
    if payload:
        theirs = Harness()
        theirs.retain(b"r/1", payload)
        (body,) = theirs.bodies.store.fetch(TENANT, [b"r/1"])
        harness.bodies.store.put([RetainedWrite(TENANT, b"r/1", body.body)])
    else:
        harness.bodies.store.delete(TENANT, [b"r/1"])
    harness.retaining.note_unannounced()

    harness.subscribe()

    assert sorted(harness.taken()) == [(b"r/0", b"x"), *([(b"r/1", payload)] if payload else [])]


@pytest.mark.parametrize("payload", [b"new", b""])
def test_what_replaces_a_message_frees_its_memory(payload: bytes) -> None:
    """Whether there is another message or none: nothing of it waits until others need its place."""
    harness = Harness(2)
    harness.subscribe()
    kept = harness.retaining._kept
    assert kept is not None
    both = kept.size_bytes

    harness.retain(b"r/1", payload)

    assert kept.size_bytes * 2 == both


def test_message_is_not_kept_if_another_one_came_while_it_was_read() -> None:
    """It is of a version that the index does not have any more."""
    harness = Harness(1)
    harness.bodies.is_held = True
    harness.subscribe()
    harness.retain(b"r/0", b"new")

    harness.bodies.release()

    assert harness.retaining._kept is not None
    assert harness.retaining._kept.size_bytes == 0


def test_message_is_not_kept_if_a_write_of_it_was_given_up_while_it_was_read() -> None:
    """The store may have done the write after that."""
    harness = Harness(1)
    harness.bodies.is_held = True
    harness.subscribe()
    assert harness.retaining.may_retain(b"r/0", 1)
    harness.retaining.failed(b"r/0")

    harness.bodies.release()

    assert harness.retaining._kept is not None
    assert harness.retaining._kept.size_bytes == 0


def test_message_whose_deletion_was_given_up_is_looked_for_in_the_store() -> None:
    """The store has deleted it, and its answer was lost."""
    harness = Harness(2)
    harness.subscribe()
    harness.taken()
    assert harness.retaining.may_retain(b"r/1", 0)
    harness.bodies.store.delete(TENANT, [b"r/1"])
    harness.retaining.failed(b"r/1")

    harness.subscribe()

    assert harness.taken() == [(b"r/0", b"x")]


def test_message_that_is_deleted_while_its_page_waits_is_not_sent() -> None:
    """It was found, and is in memory."""
    harness = Harness(2 * SLICE)
    harness.subscribe()
    harness.taken()
    harness.client.transport.is_stuck = True
    harness.subscribe()
    for number in range(2 * SLICE):
        harness.retain(b"r/%d" % number, b"")

    harness.client.transport.is_stuck = False

    assert 0 < [payload for _, payload in harness.taken()].count(b"x") < SLICE


def test_others_get_their_turns_between_pages_from_memory() -> None:
    """The store is asked for nothing whenever so many were sent."""
    harness = Harness(8 * SLICE)
    harness.subscribe()
    harness.taken()
    asked: list[int] = []
    fetch = harness.bodies.fetch
    harness.bodies.fetch = lambda tenant_id, topics: asked.append(len(topics)) or fetch(tenant_id, topics)  # type: ignore[method-assign,arg-type,func-returns-value]

    harness.subscribe()
    harness.taken()

    assert asked == [0]


@pytest.mark.parametrize("is_down", [False, True])
def test_subscribers_that_come_together_read_a_page_once(is_down: bool) -> None:
    """Whoever asks for a page that another one is fetching waits for it, and asks himself if it could not be read."""
    harness = Harness(5)
    other = harness.bench.client("other")
    harness.bodies.is_held = True
    harness.subscribe()
    replays = harness.retaining.begin_replays(other.session, [other.subscribe(b"r/#")])
    assert replays is not None
    ended: list[object] = []
    Deferred.fromCoroutine(harness.retaining.send_replays(replays)).addBoth(ended.append)

    first = harness.bodies.waiting[0]
    harness.bodies.is_held = False
    if is_down:
        first.errback(BackendError("retained.db: disk I/O error", retryable=True))
    else:
        first.callback(None)

    assert ended == [None]
    assert harness.bodies.read == 5 * (2 if is_down else 1)
    assert len(packets(other.take())) == 5
    assert (harness.ended == [None]) is not is_down


def test_message_that_is_deleted_while_another_one_fetches_its_page_is_not_sent() -> None:
    harness = Harness(2)
    other = harness.bench.client("other")
    harness.bodies.is_held = True
    harness.subscribe()
    replays = harness.retaining.begin_replays(other.session, [other.subscribe(b"r/#")])
    assert replays is not None
    Deferred.fromCoroutine(harness.retaining.send_replays(replays))
    harness.retain(b"r/1", b"")

    harness.bodies.release()

    assert [body[2:] for header, body in packets(other.take()) if header & 1] == [b"r/0x"]


def test_hub_with_others_reads_each_replay_from_the_store() -> None:
    """A hub that is gone may have written what it did not announce: an index that has an older version proves nothing."""
    harness = Harness(2, peers=OtherHubs())
    harness.subscribe()
    harness.taken()
    (body,) = harness.bodies.store.fetch(TENANT, [b"r/0"])
    theirs = Harness()
    theirs.retain(b"r/0", b"new")
    (newer,) = theirs.bodies.store.fetch(TENANT, [b"r/0"])
    harness.bodies.store.put([RetainedWrite(TENANT, b"r/0", newer.body)])

    harness.subscribe()

    assert body.body != newer.body
    assert sorted(harness.taken()) == [(b"r/0", b"new"), (b"r/1", b"x")]


class OtherHubs(PeerRetained):
    """Hubs that say nothing."""

    def open_tenant(self, tenant_id: int, here: Any) -> None:
        """It has heard."""

    def close_tenant(self, tenant_id: int) -> None:
        """It has heard."""

    def has_open(self, tenant_id: int) -> bool:
        return tenant_id > 0

    def announce_change(self, tenant_id: int, topic: bytes, version: int, expires_at_ms: int, size: int) -> None:
        """It has heard."""

    def await_synced(self, tenant_id: int, on_asked: OnAsked, on_done: OnDone) -> bool:
        del tenant_id, on_asked, on_done
        return False


@pytest.mark.parametrize("is_warm", [False, True])
def test_message_whose_write_is_given_up_during_a_replay_is_replayed(is_warm: bool) -> None:
    """It stays retained, and does not come live."""
    harness = Harness(3 * SLICE)
    if is_warm:
        harness.subscribe()
        harness.taken()
    harness.client.transport.is_stuck = True
    harness.subscribe()

    assert harness.retaining.may_retain(b"r/5", 1)
    harness.retaining.failed(b"r/5")

    harness.client.transport.is_stuck = False
    assert {topic for topic, _ in harness.taken()} == {b"r/%d" % number for number in range(3 * SLICE)}
