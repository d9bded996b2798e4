"""The queue writer when a store fails, is slow, or refuses: what is tried again, what is given up, and who hears of it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from iothub.base.errors import BackendError
from iothub.base.reasons import Reason
from iothub.engine.limits import ListenerInfo
from iothub.engine.state import AckSlot, Connection
from iothub.testing.engine import Bench, LoopbackTransport
from iothub_services.group_thread import Bounds, RetryPolicy
from iothub_services.queues.port import (
    QueueLimits,
)
from tests.support.in_process.queue_writer import TENANT, Harness, publish


@pytest.fixture
def harness() -> Harness:
    return Harness()


def test_connection_of_a_reader_whose_moves_the_store_refuses_for_good_ends(harness: Harness) -> None:
    """Its client would wait for ever for what is never durable; it comes again, and its queue is claimed anew."""
    session = harness.session(1)
    harness.run()
    link = session.connection = Connection(Bench().plane, LoopbackTransport(), ListenerInfo(), "127.0.0.1:1", None)
    harness.queues.failures = [BackendError("not allowed", retryable=False)] * 4

    harness.writer.ack(session, 1)

    assert ("close", link, Reason.STORE_UNAVAILABLE) in harness.run()


def test_writer_retries_a_failing_commit_and_raises_an_alarm() -> None:
    """Kept, tried again, answered when it succeeds; the alarm goes with its cause."""
    harness = Harness(retry_policy=RetryPolicy(1e-9, 30.0))
    item = publish(harness.session(1))
    harness.queues.failures = [BackendError("queues.db: disk full", retryable=True)] * 3
    harness.writer.append(item)

    assert harness.run() == [("stored", item, (1,), False)]
    assert [text.split(";")[0] for name, text in harness.alarms if name == "queues_failing"] == [
        "queues.db: disk full",
        "",
    ]


@pytest.mark.parametrize("is_written", [False, True])
def test_writer_gives_up_after_its_patience(harness: Harness, is_written: bool) -> None:
    """And says whether anything may have been written."""
    item = publish(harness.session(1))
    harness.queues.failures = [BackendError("disk full", retryable=True, is_written=is_written)]
    harness.writer.append(item)

    assert harness.run() == [("not_stored", item, is_written, False)]


def test_writer_tells_of_a_retained_message_that_was_given_up(harness: Harness) -> None:
    """Somebody waits for it: its room is reserved, and what it would have replaced is not replayed until then. A deletion, too."""
    harness.retained.failures = [BackendError("disk full", retryable=True) for _ in range(2)]
    harness.writer.append(publish(retain=True))
    harness.run()
    harness.writer.append(publish(retain=True, payload=b""))
    harness.run()

    assert harness.not_retained == [(TENANT.tenant_id, b"a/b")] * 2


def test_writer_says_that_a_part_was_written(harness: Harness) -> None:
    """The queues have it, the retained store failed: not "nothing was written"."""
    item = publish(harness.session(1), retain=True)
    harness.retained.failures = [BackendError("disk full", retryable=True)]
    harness.writer.append(item)

    assert harness.run() == [("not_stored", item, True, False)]


def test_writer_never_gives_up_on_what_a_reader_moved(harness: Harness) -> None:
    """Consumers go on: the acknowledgement is asked for again until it is durable."""
    session = harness.session(1)
    harness.writer.append(publish(session))
    harness.run()
    harness.queues.failures = [BackendError("disk full", retryable=True)] * 2
    harness.writer.ack(session, 1)

    assert harness.run() == [("head_moved", session, 1)]


def test_writer_is_full_when_too_much_waits() -> None:
    """By count or by bytes; the sources pause."""
    harness = Harness(bounds=Bounds(waiting=100, waiting_bytes=200))
    session = harness.session(1)
    assert not harness.writer.is_full
    harness.writer.append(publish(session, payload=bytes(300)))
    assert harness.writer.is_full
    assert harness.writer.waiting[0] == 1
    harness.run()
    assert not harness.writer.is_full


def test_writer_whose_thread_hangs_leaves_its_stores_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """The end is bounded, and nothing is closed under a commit; the others have written what they had."""
    harness, gate, is_running, closed = Harness(), threading.Event(), threading.Event(), list[str]()
    monkeypatch.setattr(harness.queues, "close", lambda: closed.append("queues"), raising=False)
    monkeypatch.setattr(harness.retained, "close", lambda: closed.append("retained"), raising=False)
    group = harness.queues.group

    @contextmanager
    def hanging() -> Iterator[None]:
        is_running.set()
        assert gate.wait(10)
        with group():
            yield

    monkeypatch.setattr(harness.queues, "group", hanging)
    harness.writer.start()
    harness.writer.call("create", (7, 1, QueueLimits()), lambda _: None, pytest.fail)
    assert is_running.wait(10)

    assert not harness.writer.close(0.05)

    assert closed == []
    gate.set()
    assert harness.writer.close()
    assert closed == ["queues", "retained"]


def test_writer_tells_of_a_reader_whose_epoch_is_refused(harness: Harness) -> None:
    """Another hub has claimed its queue: on reading, and on moving what it thinks is its own."""
    fenced, living = harness.session(1), harness.session(3)
    harness.queues.claim(1, b"other")
    for session in (fenced, living):
        harness.writer.read(session, 0, 10, 1000)
    harness.run()
    assert harness.stale == [fenced]

    for session in (fenced, living):
        harness.writer.reserve(session, 5)
    moved_on = harness.session(4)
    harness.writer.reserve(moved_on, 5)
    harness.queues.claim(4, b"other")
    moved_on.epoch += 1  # it has been claimed again here since
    harness.run()

    assert harness.stale == [fenced, fenced]


@pytest.mark.parametrize("way", ["read", "move", "message", "own message"])
def test_writer_tells_of_a_session_whose_queue_is_lost(harness: Harness, way: str) -> None:
    """Whatever was asked for; once, and not of one that has ended."""
    lost, ended, living = (harness.session(number) for number in (1, 2, 3))
    ended.is_discarded = True
    for number in (1, 2):
        harness.queues.drop(number)

    if way == "read":
        harness.writer.read(lost, 0, 10, 1000)
    for _ in range(2 if way != "read" else 0):
        if way == "move":
            harness.writer.reserve(lost, 5)
        elif way == "message":
            harness.writer.append(publish(lost, ended, living))
        else:
            item = publish(living, qos=2)
            item.inbound, item.inbound_epoch, item.packet_id = lost, lost.epoch, 9
            harness.writer.append(item)
    answers = harness.run()

    assert (harness.lost, harness.stale) == ([lost], [])
    if way == "message":
        assert [positions for _, _, positions, _ in answers] == [(-2, -2, 1), (-2, -2, 2)]


def test_writer_reports_those_behind_a_publish_whose_report_raises(harness: Harness) -> None:
    """They have waited for it alone: nothing else would bring their answers. Its connection's source ends, too."""
    session = harness.session(1)
    first, second = publish(session, retain=True), publish(session)
    first.connection = Connection(Bench().plane, LoopbackTransport(), ListenerInfo(), "127.0.0.1:1", None)
    first.slot = AckSlot(1, 1)
    told: list[object] = []

    def stored(item: object, *_answer: object) -> None:
        told.append(item)
        if item is first:
            raise ZeroDivisionError

    harness.plane.stored = stored  # type: ignore[attr-defined]
    harness.writer.append(first)
    harness.writer.append(second)
    harness.run("writes")

    with pytest.raises(ZeroDivisionError):
        harness.run("retains")

    assert told == [first, second]
    assert len(harness.writer._sources) == 0
