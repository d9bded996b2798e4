"""The queue writer: one answer per publish when everything is durable, in order; failures, pages, moves, calls."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from iothub.base.errors import BackendError, NotFoundError
from iothub.base.reasons import Drop, Reason
from iothub.engine.limits import ListenerInfo
from iothub.engine.message import Message
from iothub.engine.outbox import QueueTarget, StoredPublish
from iothub.engine.state import Connection, Session, TenantPlane
from iothub.testing.clock import ManualClock
from iothub.testing.engine import Bench, LoopbackTransport
from iothub_services.awaited import AwaitedQueues, AwaitedRetained
from iothub_services.group_thread import Bounds, RetryPolicy
from iothub_services.queues.listeners import StoreListeners
from iothub_services.queues.memory import MemoryQueues
from iothub_services.queues.port import (
    Append,
    Appended,
    Damaged,
    Delivery,
    Move,
    MoveKind,
    Overflow,
    Page,
    QueueLimits,
    StaleEpochError,
)
from iothub_services.queues.threads import RetainedPage
from iothub_services.queues.writer import QueueWriter
from iothub_services.retained.memory import MemoryRetained
from iothub_services.retained.port import RetainedTopic

ID = bytes(15) + b"\x01"
TENANT = TenantPlane(7, "acme")


class FlakyQueues(MemoryQueues):
    """Fails whole groups as often as told."""

    failures: list[Exception] = []
    commits = 0

    @contextmanager
    def group(self) -> Iterator[None]:
        self.commits += 1
        if self.failures:
            raise self.failures.pop(0)
        yield


class FlakyRetained(MemoryRetained):
    failures: list[Exception] = []

    @contextmanager
    def group(self) -> Iterator[None]:
        if self.failures:
            raise self.failures.pop(0)
        yield


class FakeTurn:
    def __init__(self) -> None:
        self.is_open = False
        self.drops: list[tuple[Any, Drop, int]] = []

    def begin(self) -> None:
        self.is_open = True

    def drop(self, tenant: Any, session: Any, reason: Drop, count: int) -> None:
        self.drops.append((session, reason, count))


class Link:
    """As much of a connection as the writer looks at."""

    def __init__(self, version: int) -> None:
        self.version = version


class FakePlane:
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.turn = FakeTurn()
        self.calls: list[tuple[Any, ...]] = []
        self.batches = 0

    def end_batch(self) -> None:
        self.turn.is_open = False
        self.batches += 1

    def __getattr__(self, verb: str) -> Callable[..., None]:
        return lambda *args: self.calls.append((verb, *args))


class Harness:
    """A writer whose threads run when `run` says so."""

    def __init__(self, **settings: Any) -> None:
        self.queues = FlakyQueues()
        self.queues.failures = []
        self.retained = FlakyRetained()
        self.retained.failures = []
        self.clock = ManualClock()
        self.alarms: list[tuple[str, str]] = []
        self.damaged: list[tuple[str, str, str]] = []
        self.retained_news: list[tuple[Any, ...]] = []
        self.not_retained: list[tuple[Any, ...]] = []
        self.stale: list[object] = []
        self.lost: list[object] = []
        self.plane = FakePlane()
        self.writer = QueueWriter(
            self.queues,
            self.retained,
            lambda call: call(),
            self.clock,
            plane=lambda: self.plane,
            on_alarm=lambda name, text: self.alarms.append((name, text)),
            on_damage=lambda *damaged, **_: self.damaged.append(damaged),
            listeners=StoreListeners(
                on_retained=lambda *news: self.retained_news.append(news),
                on_not_retained=lambda *news: self.not_retained.append(news),
                on_stale=self.stale.append,
                on_lost=self.lost.append,
            ),
            **({"retry_policy": RetryPolicy()} | settings),
        )  # not started: the threads stay off

    def session(self, queue_id: int, limits: QueueLimits | None = None) -> Session:
        self.queues.create(7, queue_id, limits or QueueLimits())
        epoch = self.queues.claim(queue_id, b"w").epoch
        return Session(TENANT, f"reader-{queue_id}", "dev1", True, queue_id, epoch)

    def run(self, *threads: str) -> list[tuple[Any, ...]]:
        for name in threads or ("writes", "retains", "reads"):
            getattr(self.writer, f"_{name}").drain()
        calls, self.plane.calls = self.plane.calls, []
        return calls


@pytest.fixture
def harness() -> Harness:
    return Harness()


def publish(*sessions: Any, retain: bool = False, payload: bytes = b"hi", qos: int = 1, name: bytes = b"a/b") -> Any:
    message = Message(name, payload, qos, retain, b"\x01\x01", 1.5, ID, None, "pub")
    return StoredPublish(TENANT, message, [QueueTarget(each, qos, retain, (5,)) for each in sessions], retain)


def test_writer_stores_a_publish_once_for_all_its_queues(harness: Harness) -> None:
    """One append with a delivery per target; the positions come back in their order."""
    first, second = harness.session(1), harness.session(2)
    item = publish(first, second, retain=False)

    harness.writer.append(item)

    assert harness.plane.calls == []
    assert harness.run() == [("stored", item, (1, 1), False)]


def test_writer_gives_pages_of_decoded_messages(harness: Harness) -> None:
    """What went in comes out: the message, QoS, the RETAIN flag of the delivery, identifiers."""
    session = harness.session(1)
    harness.writer.append(publish(session, retain=True))
    harness.run()

    harness.writer.read(session, 0, 10, 1000)
    ((verb, who, (record,), upto, is_short),) = harness.run()

    assert (verb, who, upto, is_short) == ("page", session, 1, True)
    assert (record.position, record.qos, record.flags, record.subscription_ids) == (1, 1, 1, (5,))
    message = record.message
    assert (message.topic, message.payload, message.qos, message.retain) == (b"a/b", b"hi", 1, True)
    assert (message.properties, message.expires_at, message.message_id) == (b"\x01\x01", 1.5, ID)
    assert (message.publisher, message.publisher_client_id) == (None, "pub")


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


def test_connection_of_a_reader_whose_moves_the_store_refuses_for_good_ends(harness: Harness) -> None:
    """Its client would wait for ever for what is never durable; it comes again, and its queue is claimed anew."""
    session = harness.session(1)
    harness.run()
    link = session.connection = Connection(Bench().plane, LoopbackTransport(), ListenerInfo(), "127.0.0.1:1", None)
    harness.queues.failures = [BackendError("not allowed", retryable=False)] * 4

    harness.writer.ack(session, 1)

    assert ("close", link, Reason.STORE_UNAVAILABLE) in harness.run()


def test_writer_lets_acknowledgements_make_room_for_appends_of_the_same_commit(harness: Harness) -> None:
    """A full queue whose reader has just acknowledged takes the next message."""
    session = harness.session(1, QueueLimits(1, 0, Overflow.REJECT))
    harness.writer.append(publish(session))
    harness.run()
    item = publish(session)
    harness.writer.append(item)
    harness.writer.ack(session, 1)

    assert harness.run() == [("stored", item, (2,), False), ("head_moved", session, 1)]


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


def test_writer_answers_not_now_when_a_page_cannot_be_read(harness: Harness) -> None:
    """A fenced reader, a dropped queue, a store that fails: no records and no progress."""
    session = harness.session(1)
    harness.queues.claim(1, b"other")
    harness.writer.read(session, 3, 10, 1000)
    harness.queues.drop(1)
    harness.writer.read(session, 3, 10, 1000)

    assert harness.run() == [("page", session, [], 3, False)] * 2


def test_writer_skips_a_damaged_record_with_an_alarm(harness: Harness) -> None:
    """The others of the page arrive; the drop has a name."""
    session = harness.session(1)
    harness.queues.append([Append(ID, b"damaged", 0, (Delivery(1, 1),))])
    harness.writer.append(publish(session))
    harness.run()
    harness.writer.read(session, 0, 10, 1000)

    ((_, _, records, upto, _),) = harness.run()

    assert ([record.position for record in records], upto) == ([2], 2)
    assert harness.plane.turn.drops == [(session, Drop.STORE_FAILED, 1)]
    ((store, key, _),) = harness.damaged
    assert (store, key) == ("queues", "tenant acme, client 'reader-1', message 1 of its queue")


def test_writer_names_and_counts_what_its_driver_passes_over(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    session = harness.session(1)
    page = Page([], 2, True, (Damaged(1, "the fields do not fit"), Damaged(2, "the fields do not fit")))
    monkeypatch.setattr(harness.queues, "read", lambda *_: page)
    harness.writer.read(session, 0, 10, 1000)

    assert harness.run() == [("page", session, [], 2, True)]
    assert harness.plane.turn.drops == [(session, Drop.STORE_FAILED, 2)]
    assert harness.damaged == [
        ("queues", f"tenant acme, client 'reader-1', message {number} of its queue", "the fields do not fit")
        for number in (1, 2)
    ]


def test_writer_tells_of_a_store_that_will_not_be_read(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """One alarm, until the queue that it names can be read, or is not there any more."""
    first, second = harness.session(1), harness.session(2)
    honest = harness.queues.read

    def read(*_: object) -> Any:
        raise BackendError("queues.db: database disk image is malformed", retryable=False)

    for _ in range(2):
        monkeypatch.setattr(harness.queues, "read", read)
        for session in (first, second):
            harness.writer.read(session, 0, 10, 1000)
        harness.run()
        monkeypatch.setattr(harness.queues, "read", honest)
        for session in (second, first):
            harness.writer.read(session, 0, 10, 1000)
        harness.run()
        harness.queues.drop(1)

    (_, text), *rest = harness.alarms
    assert {word for word, _ in harness.alarms} == {"queues-read_failing"}
    assert text.startswith("queue 1: queues.db: database disk image is malformed;")
    assert [bool(text) for _, text in rest] == [False, True, False]


def test_writer_calls_rare_verbs_in_their_threads(harness: Harness) -> None:
    """In order with the appends; refusals go to the errback and fail nothing else."""
    answers: list[Any] = []
    session = harness.session(1)
    harness.writer.append(publish(session))
    harness.writer.call("purge", (1,), answers.append, answers.append)
    harness.writer.call("claim", (9, b"w"), lambda _: None, lambda error: answers.append(type(error)))
    harness.writer.append(publish(session))
    harness.writer.call("tails", ([1],), answers.append, answers.append)
    harness.writer.call_retained("load", (7,), answers.append, answers.append)
    harness.writer.call_retained("delete", (7, [b"x"]), answers.append, answers.append)

    calls = harness.run()

    assert [positions for _, _, positions, _ in calls] == [(1,), (2,)]
    assert answers == [1, NotFoundError, 0, {1: 2}, []]


@pytest.mark.parametrize("verb", ["read", "tails", "existing", "stats", "stats_of", "list_queues"])
def test_verb_that_only_reads_fails_by_itself(harness: Harness, monkeypatch: pytest.MonkeyPatch, verb: str) -> None:
    """Neither the commit that goes with it nor another session's page fails with it."""

    def fail(*_: object) -> Any:
        raise BackendError("region away", retryable=True)

    answers: list[Any] = []
    session = harness.session(1)
    item = publish(session)
    monkeypatch.setattr(harness.queues, verb, fail)
    harness.writer.append(item)
    harness.writer.call(verb, ([1],), answers.append, lambda error: answers.append(str(error)))
    harness.writer.load(RetainedPage(7, b"", 5), answers.append, answers.append)

    assert harness.run() == [("stored", item, (1,), False)]
    assert answers == ["region away", []]
    assert harness.alarms == []


def test_writer_reads_stored_records_and_pages_of_topics(harness: Harness) -> None:
    """In the reading thread: nobody who stores waits for it."""
    answers: list[Any] = []
    harness.writer.append(publish(harness.session(1), retain=True))
    harness.run()
    queues, retained = AwaitedQueues(harness.writer), AwaitedRetained(harness.writer)

    stats = Deferred.fromCoroutine(queues.stats(1)).addCallback(answers.append)
    harness.run("reads")
    assert stats.called
    (found,) = answers
    Deferred.fromCoroutine(queues.read(1, found.epoch, found.head, 5, 1 << 20)).addCallback(answers.append)
    Deferred.fromCoroutine(queues.read(1, found.epoch - 1, 0, 5, 1 << 20)).addErrback(answers.append)
    Deferred.fromCoroutine(retained.page(7, b"", 5)).addCallback(answers.append)
    harness.run("reads")

    _, page, stale, topics = answers
    assert [record.position for record in page.records] == [1]
    assert stale.type is StaleEpochError
    assert len(topics) == 1


def test_rare_verbs_can_be_awaited(harness: Harness) -> None:
    """An answer, or what was in its way."""
    admin = AwaitedQueues(harness.writer)
    made = Deferred.fromCoroutine(admin.create(7, 1, QueueLimits(), 41))
    harness.run()
    claimed = Deferred.fromCoroutine(admin.claim(1, b"w"))
    failed = Deferred.fromCoroutine(admin.claim(9, b"w"))
    harness.run()
    errors: list[object] = []
    failed.addErrback(lambda failure: errors.append(failure.check(NotFoundError)))

    assert (made.result, claimed.result.epoch, errors) == (None, 41, [NotFoundError])


def test_writer_leaves_an_open_batch_of_the_plane_open(harness: Harness) -> None:
    """Answers that arrive inside a turn belong to it."""
    harness.plane.turn.begin()
    harness.writer.append(publish(harness.session(1)))
    harness.run("writes")

    assert (harness.plane.turn.is_open, harness.plane.batches) == (True, 0)


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


def test_writer_that_is_closed_has_written_what_was_asked(harness: Harness) -> None:
    """Also before it was ever started."""
    session = harness.session(1)
    harness.writer.append(publish(session))

    assert harness.writer.close()
    assert harness.plane.calls[0][2] == (1,)
    assert harness.queues.apply([Move(MoveKind.ACK, 1, session.epoch, 1)]) == [True]
    assert harness.queues.append([Append(ID, b"b", 0, (Delivery(1, 1),))]) == [Appended((2,))]


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
