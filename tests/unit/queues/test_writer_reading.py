"""The queue writer reads: pages of messages, what in them is damaged, and the rare verbs of the stores."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.defer import Deferred

from iothub.base.errors import BackendError, NotFoundError
from iothub.base.reasons import Drop
from iothub_services.awaited import AwaitedQueues, AwaitedRetained
from iothub_services.queues.port import (
    Append,
    Damaged,
    Delivery,
    Page,
    QueueLimits,
    StaleEpochError,
)
from iothub_services.queues.threads import RetainedPage
from tests.support.in_process.queue_writer import ID, Harness, publish


@pytest.fixture
def harness() -> Harness:
    return Harness()


def test_writer_gives_pages_of_decoded_messages(harness: Harness) -> None:
    """What went in comes out: the message, QoS, the RETAIN flag of the delivery, identifiers."""
    session = harness.session(1)
    harness.writer.append(publish(session, retain=True))
    harness.run()

    harness.writer.read(session, 0, 10, 1000)
    ((verb, who, (record,), upto, is_short),) = harness.run()

    assert (verb, who, upto, is_short) == ("page", session, 1, True)
    assert (record.position, record.qos, record.retain, record.identifiers) == (1, 1, True, (5,))
    assert not record.is_shared
    message = record.message
    assert (message.topic, message.payload, message.qos, message.retain) == (b"a/b", b"hi", 1, True)
    assert (message.properties, message.expires_at, message.message_id) == (b"\x01\x01", 1.5, ID)
    assert (message.publisher, message.publisher_client_id) == (None, "pub")


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
    assert answers == [(1, 0), NotFoundError, 0, {1: 2}, []]


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
