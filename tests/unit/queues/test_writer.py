"""The queue writer: one answer per publish when everything is durable, in order; moves are answered when they are."""

from __future__ import annotations

import pytest

from iothub.base.reasons import Drop
from iothub_services.queues.port import (
    Append,
    Appended,
    Delivery,
    Move,
    MoveKind,
    Overflow,
    QueueLimits,
)
from iothub_services.retained.port import RetainedTopic
from tests.support.in_process.queue_writer import ID, Harness, publish


@pytest.fixture
def harness() -> Harness:
    return Harness()


def test_writer_stores_a_publish_once_for_all_its_queues(harness: Harness) -> None:
    """One append with a delivery per target; the positions come back in their order."""
    first, second = harness.session(1), harness.session(2)
    item = publish(first, second, retain=False)

    harness.writer.append(item)

    assert harness.plane.calls == []
    assert harness.run() == [("stored", item, (1, 1), False)]


def test_writer_counts_the_deliveries_whose_ids_queues_keep_for_a_day(harness: Harness) -> None:
    """QoS 2 of streams and Wills alone: what a client publishes is settled, or nobody repeats it."""
    first, second = harness.session(1), harness.session(2)
    of_stream, at_qos_1, of_client = publish(first, second, qos=2), publish(first, qos=1), publish(first, qos=2)
    of_session = publish(first, qos=2)
    for item in (of_stream, at_qos_1, of_session):
        item.is_repeatable = True
    of_session.inbound = second

    for item in (of_stream, at_qos_1, of_client, of_session):
        harness.writer.append(item)

    assert harness.writer.repeatable_deliveries == 2


@pytest.mark.parametrize("order", [("writes", "retains"), ("retains", "writes")])
def test_writer_waits_for_queues_and_retained_store(harness: Harness, order: tuple[str, str]) -> None:
    """PUBACK waits for both, whichever is slower."""
    item = publish(harness.session(1), retain=True)
    harness.writer.append(item)

    assert harness.run(order[0]) == []
    assert harness.run(order[1]) == [("stored", item, (1,), False)]


def test_writer_stores_a_retained_message_without_subscribers(harness: Harness) -> None:
    """No PUBACK before the commit on this path either; the index hears of it first."""
    item = publish(retain=True)
    harness.writer.append(item)

    assert harness.run("writes") == []
    assert harness.run("retains") == [("stored", item, (), False)]
    assert harness.retained_news == [(7, b"a/b", 1, 1500, len(harness.retained.fetch(7, [b"a/b"])[0].body))]
    assert list(harness.retained.load(7)) == [RetainedTopic(b"a/b", 1, 1500, harness.retained_news[0][4])]


def test_writer_deletes_a_retained_message_on_an_empty_payload(harness: Harness) -> None:
    """A RETAIN with a zero-byte payload removes it [MQTT-3.3.1-6]."""
    harness.writer.append(publish(retain=True))
    harness.writer.append(publish(retain=True, payload=b""))
    harness.run()

    assert harness.retained.fetch(7, [b"a/b"]) == []
    assert harness.retained_news[1] == (7, b"a/b", 2, 1500, 0)


def test_writer_answers_in_the_order_of_the_publishes(harness: Harness) -> None:
    """A later one that is durable earlier waits for those before it."""
    session = harness.session(1)
    first, second, third = publish(session, retain=True), publish(session), publish(retain=True)
    for item in (first, second, third):
        harness.writer.append(item)

    assert harness.run("writes") == []
    assert [calls[1] for calls in harness.run("retains")] == [first, second, third]


def test_writer_makes_one_plane_batch_of_one_commit(harness: Harness) -> None:
    """Each connection is written once per commit, not once per message."""
    session = harness.session(1)
    for _ in range(5):
        harness.writer.append(publish(session))

    assert len(harness.run("writes")) == 5
    assert (harness.plane.batches, harness.queues.commits) == (1, 1)


def test_writer_reports_refusals_and_drops_by_policy(harness: Harness) -> None:
    """A refusal is the position's; what the policy dropped is counted for its session."""
    session = harness.session(1, QueueLimits(1, 0, Overflow.DROP_OLDEST))
    full = harness.session(2, QueueLimits(0, 1, Overflow.REJECT))
    first, second = publish(session), publish(session, full)
    harness.writer.append(first)
    harness.writer.append(second)

    assert harness.run("writes") == [("stored", first, (1,), False), ("stored", second, (2, -1), False)]
    assert harness.plane.turn.drops == [(session, Drop.QUEUE_FULL, 1)]


def test_writer_records_the_publishers_identifier_with_the_append(harness: Harness) -> None:
    """Inbound QoS 2: a repeated PUBLISH is a duplicate; the removal for PUBREL is durable before PUBCOMP."""
    reader, publisher = harness.session(1), harness.session(2)
    items = [publish(reader, qos=2), publish(reader, qos=2)]
    for item in items:
        item.inbound, item.inbound_epoch, item.packet_id = publisher, publisher.epoch, 9
        harness.writer.append(item)

    assert harness.run() == [("stored", items[0], (1,), False), ("stored", items[1], (), True)]
    harness.writer.finish_inbound(publisher, 9)
    assert harness.plane.calls == []
    assert harness.run() == [("inbound_finished", publisher, 9)]
    assert harness.queues.claim(2, b"w").inbound == ()


def test_writer_stores_nothing_for_a_publisher_that_was_taken_over(harness: Harness) -> None:
    """The intent is fenced: nothing was written, for certain."""
    publisher = harness.session(2)
    item = publish(harness.session(1), qos=2)
    item.inbound, item.inbound_epoch, item.packet_id = publisher, publisher.epoch, 9
    harness.queues.claim(2, b"other")
    harness.writer.append(item)

    assert harness.run() == [("not_stored", item, False, True)]


def test_writer_answers_moves_when_they_are_durable(harness: Harness) -> None:
    """Head, release and reservation; a fenced reader hears nothing."""
    session = harness.session(1)
    harness.writer.append(publish(session, qos=2))
    harness.run()
    harness.writer.reserve(session, 1024)
    harness.writer.release(session, 1)
    harness.writer.ack(session, 1)
    assert harness.plane.calls == []

    assert harness.run() == [("reserved", session, 1024), ("released", session, 1), ("head_moved", session, 1)]
    harness.queues.claim(1, b"other")
    harness.writer.ack(session, 1)
    assert harness.run() == []


def test_writer_lets_acknowledgements_make_room_for_appends_of_the_same_commit(harness: Harness) -> None:
    """A full queue whose reader has just acknowledged takes the next message."""
    session = harness.session(1, QueueLimits(1, 0, Overflow.REJECT))
    harness.writer.append(publish(session))
    harness.run()
    item = publish(session)
    harness.writer.append(item)
    harness.writer.ack(session, 1)

    assert harness.run() == [("stored", item, (2,), False), ("head_moved", session, 1)]


def test_writer_leaves_an_open_batch_of_the_plane_open(harness: Harness) -> None:
    """Answers that arrive inside a turn belong to it."""
    harness.plane.turn.begin()
    harness.writer.append(publish(harness.session(1)))
    harness.run("writes")

    assert (harness.plane.turn.is_open, harness.plane.batches) == (True, 0)


def test_writer_that_is_closed_has_written_what_was_asked(harness: Harness) -> None:
    """Also before it was ever started."""
    session = harness.session(1)
    harness.writer.append(publish(session))

    assert harness.writer.close()
    assert harness.plane.calls[0][2] == (1,)
    assert harness.queues.apply([Move(MoveKind.ACK, 1, session.epoch, 1)]) == [True]
    assert harness.queues.append([Append(ID, b"b", 0, (Delivery(1, 1),))]) == [Appended((2,))]
