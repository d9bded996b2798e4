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
from iothub_services.group_thread import Bounds, Patience
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
        self.told: list[tuple[Any, ...]] = []
        self.batches = 0

    def end_batch(self) -> None:
        self.turn.is_open = False
        self.batches += 1

    def __getattr__(self, verb: str) -> Callable[..., None]:
        return lambda *args: self.told.append((verb, *args))


class House:
    """A writer whose threads run when `run` says so."""

    def __init__(self, **settings: Any) -> None:
        self.queues = FlakyQueues()
        self.queues.failures = []
        self.retained = FlakyRetained()
        self.retained.failures = []
        self.clock = ManualClock()
        self.alarms: list[tuple[str, str]] = []
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
            on_alarm=lambda name, text: self.alarms.append((name, text)),
            listeners=StoreListeners(
                on_retained=lambda *news: self.retained_news.append(news),
                on_not_retained=lambda *news: self.not_retained.append(news),
                on_stale=self.stale.append,
                on_lost=self.lost.append,
            ),
            **({"patience": Patience()} | settings),
        )
        self.writer._plane = self.plane  # the threads stay off

    def session(self, queue_id: int, limits: QueueLimits | None = None) -> Session:
        self.queues.create(7, queue_id, limits or QueueLimits())
        epoch = self.queues.claim(queue_id, b"w").epoch
        return Session(TENANT, f"reader-{queue_id}", "dev1", True, queue_id, epoch)

    def run(self, *threads: str) -> list[tuple[Any, ...]]:
        for name in threads or ("writes", "retains", "reads"):
            getattr(self.writer, f"_{name}").drain()
        told, self.plane.told = self.plane.told, []
        return told


@pytest.fixture
def house() -> House:
    return House()


def publish(*sessions: Any, retain: bool = False, payload: bytes = b"hi", qos: int = 1, name: bytes = b"a/b") -> Any:
    message = Message(name, payload, qos, retain, b"\x01\x01", 1.5, ID, None, "pub")
    return StoredPublish(TENANT, message, [QueueTarget(each, qos, retain, (5,)) for each in sessions], retain)


def test_writer_stores_a_publish_once_for_all_its_queues(house: House) -> None:
    """One append with a delivery per target; the positions come back in their order."""
    first, second = house.session(1), house.session(2)
    item = publish(first, second, retain=False)

    house.writer.append(item)

    assert house.plane.told == []
    assert house.run() == [("stored", item, (1, 1), False)]


def test_writer_gives_pages_of_decoded_messages(house: House) -> None:
    """What went in comes out: the message, QoS, the RETAIN flag of the delivery, identifiers."""
    session = house.session(1)
    house.writer.append(publish(session, retain=True))
    house.run()

    house.writer.read(session, 0, 10, 1000)
    ((verb, who, (record,), upto, is_short),) = house.run()

    assert (verb, who, upto, is_short) == ("page", session, 1, True)
    assert (record.position, record.qos, record.flags, record.subscription_ids) == (1, 1, 1, (5,))
    message = record.message
    assert (message.topic, message.payload, message.qos, message.retain) == (b"a/b", b"hi", 1, True)
    assert (message.properties, message.expires_at, message.message_id) == (b"\x01\x01", 1.5, ID)
    assert (message.publisher, message.publisher_client_id) == (None, "pub")


@pytest.mark.parametrize("order", [("writes", "retains"), ("retains", "writes")])
def test_writer_waits_for_queues_and_retained_store(house: House, order: tuple[str, str]) -> None:
    """PUBACK waits for both, whichever is slower."""
    item = publish(house.session(1), retain=True)
    house.writer.append(item)

    assert house.run(order[0]) == []
    assert house.run(order[1]) == [("stored", item, (1,), False)]


def test_writer_stores_a_retained_message_without_subscribers(house: House) -> None:
    """No PUBACK before the commit on this path either; the index hears of it first."""
    item = publish(retain=True)
    house.writer.append(item)

    assert house.run("writes") == []
    assert house.run("retains") == [("stored", item, (), False)]
    assert house.retained_news == [(7, b"a/b", 1, 1500, len(house.retained.fetch(7, [b"a/b"])[0].body))]
    assert list(house.retained.load(7)) == [RetainedTopic(b"a/b", 1, 1500, house.retained_news[0][4])]


def test_writer_deletes_a_retained_message_on_an_empty_payload(house: House) -> None:
    """A RETAIN with a zero-byte payload removes it [MQTT-3.3.1-6]."""
    house.writer.append(publish(retain=True))
    house.writer.append(publish(retain=True, payload=b""))
    house.run()

    assert house.retained.fetch(7, [b"a/b"]) == []
    assert house.retained_news[1] == (7, b"a/b", 2, 1500, 0)


def test_writer_answers_in_the_order_of_the_publishes(house: House) -> None:
    """A later one that is durable earlier waits for those before it."""
    session = house.session(1)
    first, second, third = publish(session, retain=True), publish(session), publish(retain=True)
    for item in (first, second, third):
        house.writer.append(item)

    assert house.run("writes") == []
    assert [told[1] for told in house.run("retains")] == [first, second, third]


def test_writer_makes_one_plane_batch_of_one_commit(house: House) -> None:
    """Each connection is written once per commit, not once per message."""
    session = house.session(1)
    for _ in range(5):
        house.writer.append(publish(session))

    assert len(house.run("writes")) == 5
    assert (house.plane.batches, house.queues.commits) == (1, 1)


def test_writer_reports_refusals_and_drops_by_policy(house: House) -> None:
    """A refusal is the position's; what the policy dropped is counted for its session."""
    session = house.session(1, QueueLimits(1, 0, Overflow.DROP_OLDEST))
    full = house.session(2, QueueLimits(0, 1, Overflow.REJECT))
    first, second = publish(session), publish(session, full)
    house.writer.append(first)
    house.writer.append(second)

    assert house.run("writes") == [("stored", first, (1,), False), ("stored", second, (2, -1), False)]
    assert house.plane.turn.drops == [(session, Drop.QUEUE_FULL, 1)]


def test_writer_records_the_publishers_identifier_with_the_append(house: House) -> None:
    """Inbound QoS 2: a repeated PUBLISH is a duplicate; the removal for PUBREL is durable before PUBCOMP."""
    reader, publisher = house.session(1), house.session(2)
    items = [publish(reader, qos=2), publish(reader, qos=2)]
    for item in items:
        item.inbound, item.inbound_epoch, item.packet_id = publisher, publisher.epoch, 9
        house.writer.append(item)

    assert house.run() == [("stored", items[0], (1,), False), ("stored", items[1], (), True)]
    house.writer.finish_inbound(publisher, 9)
    assert house.plane.told == []
    assert house.run() == [("inbound_finished", publisher, 9)]
    assert house.queues.claim(2, b"w").inbound == ()


def test_writer_stores_nothing_for_a_publisher_that_was_taken_over(house: House) -> None:
    """The intent is fenced: nothing was written, for certain."""
    publisher = house.session(2)
    item = publish(house.session(1), qos=2)
    item.inbound, item.inbound_epoch, item.packet_id = publisher, publisher.epoch, 9
    house.queues.claim(2, b"other")
    house.writer.append(item)

    assert house.run() == [("not_stored", item, False, True)]


def test_writer_answers_moves_when_they_are_durable(house: House) -> None:
    """Head, release and reservation; a fenced reader hears nothing."""
    session = house.session(1)
    house.writer.append(publish(session, qos=2))
    house.run()
    house.writer.reserve(session, 1024)
    house.writer.release(session, 1)
    house.writer.ack(session, 1)
    assert house.plane.told == []

    assert house.run() == [("reserved", session, 1024), ("released", session, 1), ("head_moved", session, 1)]
    house.queues.claim(1, b"other")
    house.writer.ack(session, 1)
    assert house.run() == []


def test_connection_of_a_reader_whose_moves_the_store_refuses_for_good_ends(house: House) -> None:
    """Its client would wait for ever for what is never durable; it comes again, and its queue is claimed anew."""
    session = house.session(1)
    house.run()
    link = session.connection = Connection(Bench().plane, LoopbackTransport(), ListenerInfo(), "127.0.0.1:1", None)
    house.queues.failures = [BackendError("not allowed", retryable=False)] * 4

    house.writer.ack(session, 1)

    assert ("close", link, Reason.STORE_UNAVAILABLE) in house.run()


def test_writer_lets_acknowledgements_make_room_for_appends_of_the_same_commit(house: House) -> None:
    """A full queue whose reader has just acknowledged takes the next message."""
    session = house.session(1, QueueLimits(1, 0, Overflow.REJECT))
    house.writer.append(publish(session))
    house.run()
    item = publish(session)
    house.writer.append(item)
    house.writer.ack(session, 1)

    assert house.run() == [("stored", item, (2,), False), ("head_moved", session, 1)]


def test_writer_retries_a_failing_commit_and_raises_an_alarm() -> None:
    """Kept, tried again, answered when it succeeds; the alarm goes with its cause."""
    house = House(patience=Patience(1e-9, 30.0))
    item = publish(house.session(1))
    house.queues.failures = [BackendError("queues.db: disk full", retryable=True)] * 3
    house.writer.append(item)

    assert house.run() == [("stored", item, (1,), False)]
    assert [text.split(";")[0] for name, text in house.alarms if name == "queues_failing"] == [
        "queues.db: disk full",
        "",
    ]


@pytest.mark.parametrize("is_written", [False, True])
def test_writer_gives_up_after_its_patience(house: House, is_written: bool) -> None:
    """And says whether anything may have been written."""
    item = publish(house.session(1))
    house.queues.failures = [BackendError("disk full", retryable=True, is_written=is_written)]
    house.writer.append(item)

    assert house.run() == [("not_stored", item, is_written, False)]


def test_writer_tells_of_a_retained_message_that_was_given_up(house: House) -> None:
    """Somebody has reserved room for it; nobody has for a deletion."""
    house.retained.failures = [BackendError("disk full", retryable=True) for _ in range(2)]
    house.writer.append(publish(retain=True))
    house.run()
    house.writer.append(publish(retain=True, payload=b""))
    house.run()

    assert house.not_retained == [(TENANT.tenant_id, b"a/b")]


def test_writer_says_that_a_part_was_written(house: House) -> None:
    """The queues have it, the retained store failed: not "nothing was written"."""
    item = publish(house.session(1), retain=True)
    house.retained.failures = [BackendError("disk full", retryable=True)]
    house.writer.append(item)

    assert house.run() == [("not_stored", item, True, False)]


def test_writer_never_gives_up_on_what_a_reader_moved(house: House) -> None:
    """Consumers go on: the acknowledgement is asked for again until it is durable."""
    session = house.session(1)
    house.writer.append(publish(session))
    house.run()
    house.queues.failures = [BackendError("disk full", retryable=True)] * 2
    house.writer.ack(session, 1)

    assert house.run() == [("head_moved", session, 1)]


def test_writer_is_full_when_too_much_waits() -> None:
    """By count or by bytes; the sources pause."""
    house = House(bounds=Bounds(waiting=100, waiting_bytes=200))
    session = house.session(1)
    assert not house.writer.is_full
    house.writer.append(publish(session, payload=bytes(300)))
    assert house.writer.is_full
    assert house.writer.waiting[0] == 1
    house.run()
    assert not house.writer.is_full


def test_writer_answers_not_now_when_a_page_cannot_be_read(house: House) -> None:
    """A fenced reader, a dropped queue, a store that fails: no records and no progress."""
    session = house.session(1)
    house.queues.claim(1, b"other")
    house.writer.read(session, 3, 10, 1000)
    house.queues.drop(1)
    house.writer.read(session, 3, 10, 1000)

    assert house.run() == [("page", session, [], 3, False)] * 2


def test_writer_skips_a_damaged_record_with_an_alarm(house: House) -> None:
    """The others of the page arrive; the drop has a name."""
    session = house.session(1)
    house.queues.append([Append(ID, b"damaged", 0, (Delivery(1, 1),))])
    house.writer.append(publish(session))
    house.run()
    house.writer.read(session, 0, 10, 1000)

    ((_, _, records, upto, _),) = house.run()

    assert ([record.position for record in records], upto) == ([2], 2)
    assert house.plane.turn.drops == [(session, Drop.STORE_FAILED, 1)]
    assert house.alarms[0][0] == "queue_records_corrupt"
    assert "queue 1, the first at position 1" in house.alarms[0][1]


def test_writer_names_and_counts_what_its_driver_passes_over(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    session = house.session(1)
    page = Page([], 2, True, (Damaged(1, "the fields do not fit"), Damaged(2, "the fields do not fit")))
    monkeypatch.setattr(house.queues, "read", lambda *_: page)
    house.writer.read(session, 0, 10, 1000)

    assert house.run() == [("page", session, [], 2, True)]
    assert house.plane.turn.drops == [(session, Drop.STORE_FAILED, 2)]
    ((word, text),) = house.alarms
    assert (word, "the first at position 1" in text) == ("queue_records_corrupt", True)


def test_writer_tells_of_a_store_that_will_not_be_read(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """One alarm, until the queue that it names can be read, or is not there any more."""
    first, second = house.session(1), house.session(2)
    honest = house.queues.read

    def read(*_: object) -> Any:
        raise BackendError("queues.db: database disk image is malformed", retryable=False)

    for _ in range(2):
        monkeypatch.setattr(house.queues, "read", read)
        for session in (first, second):
            house.writer.read(session, 0, 10, 1000)
        house.run()
        monkeypatch.setattr(house.queues, "read", honest)
        for session in (second, first):
            house.writer.read(session, 0, 10, 1000)
        house.run()
        house.queues.drop(1)

    (_, text), *rest = house.alarms
    assert {word for word, _ in house.alarms} == {"queues-read_failing"}
    assert text.startswith("queue 1: queues.db: database disk image is malformed;")
    assert [bool(text) for _, text in rest] == [False, True, False]


def test_writer_calls_rare_verbs_in_their_threads(house: House) -> None:
    """In order with the appends; refusals go to the errback and fail nothing else."""
    answers: list[Any] = []
    session = house.session(1)
    house.writer.append(publish(session))
    house.writer.call("purge", (1,), answers.append, answers.append)
    house.writer.call("claim", (9, b"w"), lambda _: None, lambda error: answers.append(type(error)))
    house.writer.append(publish(session))
    house.writer.call("tails", ([1],), answers.append, answers.append)
    house.writer.call_retained("load", (7,), answers.append, answers.append)
    house.writer.call_retained("delete", (7, [b"x"]), answers.append, answers.append)

    told = house.run()

    assert [positions for _, _, positions, _ in told] == [(1,), (2,)]
    assert answers == [1, NotFoundError, 0, {1: 2}, []]


def test_writer_reads_stored_records_and_pages_of_topics(house: House) -> None:
    """In the reading thread: nobody who stores waits for it."""
    answers: list[Any] = []
    house.writer.append(publish(house.session(1), retain=True))
    house.run()
    queues, retained = AwaitedQueues(house.writer), AwaitedRetained(house.writer)

    stats = Deferred.fromCoroutine(queues.stats(1)).addCallback(answers.append)
    house.run("reads")
    assert stats.called
    (found,) = answers
    Deferred.fromCoroutine(queues.read(1, found.epoch, found.head, 5, 1 << 20)).addCallback(answers.append)
    Deferred.fromCoroutine(queues.read(1, found.epoch - 1, 0, 5, 1 << 20)).addErrback(answers.append)
    Deferred.fromCoroutine(retained.page(7, b"", 5)).addCallback(answers.append)
    house.run("reads")

    _, page, stale, topics = answers
    assert [record.position for record in page.records] == [1]
    assert stale.type is StaleEpochError
    assert len(topics) == 1


def test_rare_verbs_can_be_awaited(house: House) -> None:
    """An answer, or what was in its way."""
    admin = AwaitedQueues(house.writer)
    made = Deferred.fromCoroutine(admin.create(7, 1, QueueLimits(), 41))
    house.run()
    claimed = Deferred.fromCoroutine(admin.claim(1, b"w"))
    failed = Deferred.fromCoroutine(admin.claim(9, b"w"))
    house.run()
    errors: list[object] = []
    failed.addErrback(lambda failure: errors.append(failure.check(NotFoundError)))

    assert (made.result, claimed.result.epoch, errors) == (None, 41, [NotFoundError])


def test_writer_leaves_an_open_batch_of_the_plane_open(house: House) -> None:
    """Answers that arrive inside a turn belong to it."""
    house.plane.turn.begin()
    house.writer.append(publish(house.session(1)))
    house.run("writes")

    assert (house.plane.turn.is_open, house.plane.batches) == (True, 0)


def test_writer_whose_thread_hangs_leaves_its_stores_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """The end is bounded, and nothing is closed under a commit; the others have written what they had."""
    house, gate, is_running, closed = House(), threading.Event(), threading.Event(), list[str]()
    monkeypatch.setattr(house.queues, "close", lambda: closed.append("queues"), raising=False)
    monkeypatch.setattr(house.retained, "close", lambda: closed.append("retained"), raising=False)
    group = house.queues.group

    @contextmanager
    def hanging() -> Iterator[None]:
        is_running.set()
        assert gate.wait(10)
        with group():
            yield

    monkeypatch.setattr(house.queues, "group", hanging)
    house.writer.start(house.plane)
    house.writer.call("create", (7, 1, QueueLimits()), lambda _: None, pytest.fail)
    assert is_running.wait(10)

    assert not house.writer.close(0.05)

    assert closed == []
    gate.set()
    assert house.writer.close()
    assert closed == ["queues", "retained"]


def test_writer_that_is_closed_has_written_what_was_asked(house: House) -> None:
    """Also before it was ever started."""
    session = house.session(1)
    house.writer.append(publish(session))

    assert house.writer.close()
    assert house.plane.told[0][2] == (1,)
    assert house.queues.apply([Move(MoveKind.ACK, 1, session.epoch, 1)]) == [True]
    assert house.queues.append([Append(ID, b"b", 0, (Delivery(1, 1),))]) == [Appended((2,))]


def test_writer_tells_of_a_reader_whose_epoch_is_refused(house: House) -> None:
    """Another hub has claimed its queue: on reading, and on moving what it thinks is its own."""
    fenced, living = house.session(1), house.session(3)
    house.queues.claim(1, b"other")
    for session in (fenced, living):
        house.writer.read(session, 0, 10, 1000)
    house.run()
    assert house.stale == [fenced]

    for session in (fenced, living):
        house.writer.reserve(session, 5)
    moved_on = house.session(4)
    house.writer.reserve(moved_on, 5)
    house.queues.claim(4, b"other")
    moved_on.epoch += 1  # it has been claimed again here since
    house.run()

    assert house.stale == [fenced, fenced]


@pytest.mark.parametrize("way", ["read", "move", "message", "own message"])
def test_writer_tells_of_a_session_whose_queue_is_lost(house: House, way: str) -> None:
    """Whatever was asked for; once, and not of one that has ended."""
    lost, ended, living = (house.session(number) for number in (1, 2, 3))
    ended.is_discarded = True
    for number in (1, 2):
        house.queues.drop(number)

    if way == "read":
        house.writer.read(lost, 0, 10, 1000)
    for _ in range(2 if way != "read" else 0):
        if way == "move":
            house.writer.reserve(lost, 5)
        elif way == "message":
            house.writer.append(publish(lost, ended, living))
        else:
            item = publish(living, qos=2)
            item.inbound, item.inbound_epoch, item.packet_id = lost, lost.epoch, 9
            house.writer.append(item)
    answers = house.run()

    assert (house.lost, house.stale) == ([lost], [])
    if way == "message":
        assert [positions for _, _, positions, _ in answers] == [(-2, -2, 1), (-2, -2, 2)]
