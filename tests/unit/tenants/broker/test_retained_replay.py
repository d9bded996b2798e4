"""Retained messages are replayed page by page, as fast as the client takes them; none is missed, none comes after a newer one.

A rule of the whole file: each subscription gets what was retained when it became active, also if that has just come live [MQTT-3.3.1-9].
"""

from __future__ import annotations

from typing import Any, cast

import pytest
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from iothub.base.errors import BackendError
from iothub.base.reasons import Drop
from iothub.records.message import StoredMessage, encode_message
from iothub.testing.engine import packets
from iothub_services.quota.ledger import LocalLedger
from iothub_services.quota.resolve import resolve_texts
from iothub_services.retained.port import RetainedWrite
from iothub_tenants.broker.retaining import PAGE_BYTES, SLICE
from tests.support.in_process.retained_harness import TENANT, Harness


def topics(found: list[tuple[bytes, bytes]]) -> list[bytes]:
    return [topic for topic, _ in found]


def test_client_gets_everything_once() -> None:
    """Across pages and stretches of the index."""
    harness = Harness(3000)
    harness.subscribe()

    found = topics(harness.taken())

    assert sorted(found) == sorted(b"r/%d" % number for number in range(3000))
    assert harness.ended == [None]
    assert harness.bench.plane.replays.queues == {}


def test_every_filter_of_the_first_packet_is_replayed() -> None:
    """At once, not with the next tick; and nothing counts as dropped."""
    harness = Harness(3)
    harness.bench.observer.drops.clear()

    harness.subscribe(b"r/0", b"r/2")

    assert [body[2:5] for _, body in packets(harness.client.take())] == [b"r/0", b"r/2"]
    assert harness.bench.observer.drops == []


def test_replay_within_a_batch_is_written_with_it() -> None:
    """As of a client whose SUBSCRIBE finds everything in memory: nothing behind it is parsed in between."""
    harness = Harness(1)
    harness.bench.plane.turn.begin()

    harness.subscribe()

    assert harness.client.take() == b""
    harness.bench.plane.end_batch()
    assert len(packets(harness.client.take())) == 1


@pytest.mark.parametrize(("late_ms", "is_sent"), [(-1, True), (0, False)])
@pytest.mark.parametrize("is_read_before", [True, False])
def test_message_that_has_expired_is_not_replayed(is_read_before: bool, late_ms: int, is_sent: bool) -> None:
    """To the millisecond: whether it has expired when it is looked for, or while its body is read."""
    harness = Harness()
    clock = harness.bench.clock
    expires_at_ms = int(clock.wall() * 1000) + 2000
    harness.store(b"t", b"x", expires_at_ms)
    harness.bodies.is_held = is_read_before
    if is_read_before:
        harness.subscribe(b"t")
    clock.advance((expires_at_ms + late_ms) / 1000 - clock.wall())
    if is_read_before:
        harness.bodies.release()
    else:
        harness.subscribe(b"t")

    assert harness.bodies.read == int(is_sent or is_read_before)
    assert len(packets(harness.client.take())) == int(is_sent)
    assert harness.bench.observer.drops == []
    assert harness.ended == [None]


def test_page_ends_before_a_message_that_is_too_great_for_it() -> None:
    """Although a later one would fit."""
    harness = Harness()
    harness.client.transport.is_stuck = True
    harness.client.connection.out += bytes(5000)
    for number, size in enumerate((1, PAGE_BYTES // 2, PAGE_BYTES // 2 + 1)):
        harness.store(b"t/%d" % number, bytes(size))

    harness.subscribe(b"t/+")

    assert harness.bodies.read == 1


@pytest.mark.parametrize("beyond", [0, 1])
def test_page_is_filled_to_the_byte(beyond: int) -> None:
    """The sizes of the bodies count, each its own."""
    harness = Harness()
    harness.client.transport.is_stuck = True
    harness.client.connection.out += bytes(5000)
    head = harness.store(b"t/3", b"x") - 1
    left = PAGE_BYTES - harness.store(b"t/1", bytes(100)) - harness.store(b"t/2", bytes(2000)) - head + beyond
    harness.store(b"t/3", bytes(left))

    harness.subscribe(b"t/+")

    assert harness.bodies.read == 3 - beyond


def test_client_that_does_not_read_costs_a_page() -> None:
    """And the next one is read when it goes on."""
    harness = Harness(3000)
    harness.client.transport.is_stuck = True
    harness.subscribe()
    harness.bench.pass_time(10.0)
    assert harness.bodies.read == SLICE

    harness.client.transport.is_stuck = False
    assert len(harness.taken()) == 3000


def test_page_of_great_messages_is_short() -> None:
    """Bounded by bytes; one that is greater than a page comes alone: here the first is on the wire, and the second waits."""
    harness = Harness(100, PAGE_BYTES // 4)
    harness.client.transport.is_stuck = True
    harness.subscribe()
    harness.bench.pass_time(1.0)
    assert harness.bodies.read == 3

    harness = Harness(3, 2 * PAGE_BYTES)
    harness.client.transport.is_stuck = True
    harness.subscribe()
    harness.bench.pass_time(1.0)
    assert harness.bodies.read == 2


def test_what_came_live_meanwhile_is_not_replayed() -> None:
    """The replay sends neither the new message again, nor the old one after it."""
    harness = Harness(1000)
    harness.client.transport.is_stuck = True
    harness.subscribe()
    harness.client.transport.is_stuck = False
    for number in range(1000):
        harness.retain(b"r/%d" % number, b"new")

    found = harness.taken()

    last = dict(found)
    assert last == {b"r/%d" % number: b"new" for number in range(1000)}
    assert [payload for _, payload in found].count(b"new") == 1000


@pytest.mark.parametrize("is_durable", [True, False])
def test_message_newer_than_the_snapshot_comes_live_only(is_durable: bool) -> None:
    """Nothing older follows it, and nothing that was deleted: whether the store has it already or not."""
    harness = Harness(600)
    harness.client.transport.is_stuck = True
    harness.subscribe()
    harness.client.transport.is_stuck = False
    harness.ask_to_retain(b"r/new", b"new")
    for number in range(600):
        harness.ask_to_retain(b"r/%d" % number, b"")
    if is_durable:
        harness.bodies.commit()

    found = harness.taken()

    assert dict(found) == {b"r/new": b"new"} | {b"r/%d" % number: b"" for number in range(600)}
    assert found.count((b"r/new", b"new")) == 1


@pytest.mark.parametrize("is_durable", [True, False])
@pytest.mark.parametrize("topic_filter", [b"r/#", b"r/+"])
@pytest.mark.parametrize("unsubscribes", [True, False])
def test_message_that_came_live_before_a_subscription_is_replayed_to_it(
    is_durable: bool, topic_filter: bytes, unsubscribes: bool
) -> None:
    """By the same filter again or by another one, while the first replay still runs [MQTT-3.3.1-9] [MQTT-3.8.4-4] [MQTT3-3.8.4-3]."""
    harness = Harness(1)
    harness.bodies.is_held = True
    harness.subscribe()
    harness.ask_to_retain(b"r/new", b"live")
    if is_durable:
        harness.bodies.commit()
    assert harness.taken(0.1) == [(b"r/new", b"live")]

    if unsubscribes:
        harness.unsubscribe()
    harness.subscribe(topic_filter)
    harness.bodies.commit()
    harness.bodies.release()

    assert (b"r/new", b"live") in harness.taken(2.0)
    assert harness.ended == [None]


def test_message_that_comes_live_between_two_subscriptions_is_replayed_to_the_second_alone() -> None:
    """Both replays run at the same time; each has its own snapshot."""
    harness = Harness(1)
    harness.bodies.is_held = True
    harness.subscribe(b"r/#")
    harness.ask_to_retain(b"r/0", b"between")
    harness.subscribe(b"r/+")
    harness.ask_to_retain(b"r/1", b"after")
    harness.bodies.commit()
    harness.bodies.release()

    found = harness.taken(2.0)

    assert found.count((b"r/0", b"between")) == 2
    assert found.count((b"r/1", b"after")) == 1
    assert (b"r/0", b"x") not in found


def test_snapshot_is_taken_before_later_writes_of_the_same_commit_are_reported() -> None:
    """What was asked for after the SUBSCRIBE has come live, although the store does both at once."""
    harness = Harness(1)
    harness.ask_to_retain(b"r/before", b"b")
    harness.subscribe()
    harness.ask_to_retain(b"r/after", b"a")
    assert harness.taken(0.1) == [(b"r/after", b"a")]

    harness.bodies.commit()

    assert sorted(harness.taken(2.0)) == [(b"r/0", b"x"), (b"r/before", b"b")]


def test_message_that_another_hub_has_replaced_is_replayed() -> None:
    """It did not come live here, however new it is."""
    harness = Harness(1)
    body = encode_message(StoredMessage(b"r/0", b"elsewhere", 0, True, b"", 0, b"", "p"))
    harness.bodies.store.put([RetainedWrite(TENANT, b"r/0", body)])

    harness.subscribe()

    assert harness.taken(2.0) == [(b"r/0", b"elsewhere")]


def test_write_that_was_given_up_does_not_hold_back_what_is_retained() -> None:
    """A deletion, too: the message is still there for who comes next."""
    harness = Harness(1)
    for payload in (b"new", b""):
        harness.ask_to_retain(b"r/0", payload)
        harness.bodies.writes.clear()
        harness.retaining.failed(b"r/0")

    harness.subscribe()

    assert harness.taken(2.0) == [(b"r/0", b"x")]


def test_unsubscribe_ends_the_replays_of_its_filter() -> None:
    """Those that wait too, not those of another filter; what was sent before still comes [MQTT-3.10.4-2] [MQTT-3.10.4-3]."""
    harness = Harness(3000)
    harness.client.transport.is_stuck = True
    for topic_filter in (b"r/#", b"r/7", b"r/#"):
        harness.subscribe(topic_filter)
    harness.unsubscribe()
    harness.client.transport.is_stuck = False

    found = topics(harness.taken())

    assert 0 < len(found) < SLICE
    assert found[-1] == b"r/7"
    assert harness.ended == [None]
    assert harness.bench.plane.replays.queues == {}


def test_each_subscribe_has_a_replay_of_its_own() -> None:
    """Also by the same Topic Filter, while the replays before it are not finished, and twice in one packet [MQTT-3.8.4-4] [MQTT-3.8.4-5]."""
    harness = Harness(300)
    harness.client.transport.is_stuck = True
    harness.subscribe()
    harness.ask_to_retain(b"r/0", b"live")
    harness.bodies.commit()
    harness.subscribe()
    harness.subscribe(b"r/0", b"r/1", b"r/0")
    harness.client.transport.is_stuck = False

    found = harness.received(60.0)

    retained = [(topic, payload) for topic, payload, is_retained in found if is_retained]
    others = {(b"r/%d" % number, b"x") for number in range(1, 300)}
    assert set(retained[:299]) == others
    assert set(retained[299:-3]) == others | {(b"r/0", b"live")}
    assert retained[-3:] == [(b"r/0", b"live"), (b"r/1", b"x"), (b"r/0", b"live")]
    assert len(retained) == 299 + 300 + 3
    assert harness.ended == [None]
    assert harness.bench.plane.replays.queues == {}


def test_many_subscribes_of_a_client_that_does_not_read_cost_one_page() -> None:
    """And one look into the index."""
    harness = Harness(3000)
    harness.client.transport.is_stuck = True
    for _ in range(100):
        harness.subscribe()
    harness.bench.pass_time(1.0)

    assert harness.bodies.read == SLICE
    assert harness.retaining.replays_waiting(harness.client.session) == 100


def test_subscription_that_ends_before_its_replay_begins_gets_no_retained_message() -> None:
    """SUBSCRIBE, PUBLISH, SUBSCRIBE, UNSUBSCRIBE: live it came, and nothing is added after the UNSUBSCRIBE [MQTT-3.10.4-2]."""
    harness = Harness()
    harness.subscribe(b"t")
    harness.ask_to_retain(b"t", b"live")
    harness.subscribe(b"t")
    harness.unsubscribe(b"t")
    harness.bodies.commit()

    assert harness.received(2.0) == [(b"t", b"live", False)]

    harness.subscribe(b"t")
    assert harness.received(2.0) == [(b"t", b"live", True)]


def test_replays_of_the_next_connection_do_not_wait_for_those_of_the_last() -> None:
    """The same session has come back while a page was being read."""
    harness = Harness(3000)
    harness.bodies.is_held = True
    harness.subscribe()
    connection = harness.client.connection
    harness.bench.plane.detach(harness.client.session)
    harness.client.session.connection = connection

    harness.subscribe(b"r/1")
    harness.bodies.release()

    assert topics(harness.taken(2.0)) == [b"r/1"]
    assert harness.ended == [None, None]
    assert harness.bench.plane.replays.queues == {}


@pytest.mark.parametrize("is_held", [True, False])
def test_client_that_leaves_ends_its_replay(is_held: bool) -> None:
    """While a page is being read, and while one waits for its socket."""
    harness = Harness(3000)
    harness.bodies.is_held = is_held
    harness.client.transport.is_stuck = True
    harness.subscribe()

    harness.client.drop()
    harness.bench.pass_time(1.0)
    harness.bodies.release()

    assert harness.ended == [None]
    assert harness.bodies.read <= SLICE
    assert harness.bench.plane.replays.queues == {}


def test_store_that_fails_ends_the_replays() -> None:
    """All of the session, whose connection ends with the error that is raised; nothing is remembered for ever."""
    harness = Harness(10)
    harness.retain(b"other", b"x")
    harness.bodies.is_held = True
    harness.subscribe()
    harness.subscribe(b"other")
    assert harness.ended == []

    harness.bodies.is_down = True
    harness.bodies.release()

    assert [cast("Failure", each).type for each in harness.ended] == [BackendError]
    assert harness.bench.plane.replays.queues == {}


def test_snapshot_that_the_store_does_not_give_ends_the_replays() -> None:
    """Only if somebody still waits for it."""
    harness = Harness(10)
    harness.ask_to_retain(b"s/1", b"x")
    harness.bodies.settles_with = BackendError("retained.db: disk I/O error", retryable=True)
    harness.subscribe()
    assert [cast("Failure", each).type for each in harness.ended] == [BackendError]
    harness.ended.clear()

    harness.bodies.is_held = True
    harness.bodies.settles_with = None
    harness.bodies.commit()
    harness.subscribe(b"r/1")
    harness.ask_to_retain(b"s/2", b"x")
    harness.bodies.settles_with = BackendError("retained.db: disk I/O error", retryable=True)
    harness.subscribe()
    harness.unsubscribe()
    harness.bodies.release()

    assert topics(harness.taken(2.0)) == [b"r/1"]
    assert harness.ended == [None]


def test_store_is_not_asked_while_nothing_is_on_its_way_there() -> None:
    """A SUBSCRIBE costs no thread its sleep."""
    harness = Harness(10)
    harness.bodies.settles_with = BackendError("asked", retryable=True)

    harness.subscribe(b"r/1")
    harness.subscribe(b"nothing")

    assert topics(harness.taken(2.0)) == [b"r/1"]
    assert harness.ended == [None, None]


def test_filter_that_matches_little_in_a_great_index_finds_it() -> None:
    """Stretches without a match are no end."""
    harness = Harness(3000)
    harness.retain(b"s/1", b"x")
    harness.subscribe(b"+/2999")

    assert topics(harness.taken(2.0)) == [b"r/2999"]


def test_great_index_is_loaded_in_stretches() -> None:
    """Counted as before."""
    harness = Harness(2500)
    ledger = LocalLedger(TENANT, resolve_texts(""), cast("Any", None))
    again = harness.retained_by(ledger)
    Deferred.fromCoroutine(again.load())

    harness.retaining = again
    harness.subscribe()

    assert len(harness.taken()) == 2500


def test_damaged_message_is_counted_and_the_others_come() -> None:
    """It is dropped by name for who should get it, until its topic gets another one."""
    harness = Harness(3)
    bodies = harness.bodies.store._bodies
    bodies[TENANT, b"r/1"] = bodies[TENANT, b"r/1"]._replace(body=b"\x01" * 60)

    harness.subscribe()

    assert topics(harness.taken(2.0)) == [b"r/2", b"r/0"]
    assert harness.damaged == [("retained", "tenant acme, topic 'r/1'", "damaged message: the checksum differs")]
    assert harness.bench.tenant.counters.dropped[Drop.STORE_FAILED] == 1

    harness.retain(b"r/1", b"new")
    assert harness.taken(0.1) == [(b"r/1", b"new")]
    harness.subscribe(b"r/1")

    assert harness.taken(2.0) == [(b"r/1", b"new")]


def test_damaged_message_can_be_deleted() -> None:
    """As any other one."""
    harness = Harness(1)
    bodies = harness.bodies.store._bodies
    bodies[TENANT, b"r/0"] = bodies[TENANT, b"r/0"]._replace(body=b"")

    Deferred.fromCoroutine(harness.retaining.delete(b"r/#")).addErrback(harness.ended.append)

    assert (bodies, harness.retaining.is_empty, harness.ended) == ({}, True, [])
