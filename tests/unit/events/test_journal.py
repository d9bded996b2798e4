"""The event log as the session manager sees it: notes are gathered, order is kept, what is lost is counted."""

from __future__ import annotations

from collections.abc import Callable

from structlog.testing import capture_logs
from twisted.internet.defer import Deferred

from iothub.base.errors import BackendError
from iothub.records.events import Event, Subject, session_discarded, will_set
from iothub_services.events.journal import GATHER, ThreadJournal
from iothub_services.events.retention import TrimStatistics
from iothub_services.group_thread import FOREVER_S


class Thread:
    """The log's thread, without a thread."""

    def __init__(self) -> None:
        self.is_full = False
        self.submitted: list[list[Event] | TrimStatistics] = []
        self.answers: list[Callable[[object], None]] = []
        self.sizes: list[int] = []
        self.patience: list[float | None] = []

    def submit(
        self,
        op: list[Event] | TrimStatistics,
        callback: Callable[[object], None],
        size_bytes: int = 0,
        give_up_s: float | None = None,
    ) -> None:
        self.submitted.append(op)
        self.answers.append(callback)
        self.sizes.append(size_bytes)
        self.patience.append(give_up_s)


class Timers:
    """`callLater`, fired by hand."""

    def __init__(self) -> None:
        self.calls: list[Callable[[], None]] = []

    def __call__(self, seconds: float, call: Callable[[], None]) -> object:
        self.calls.append(call)
        return None

    def fire(self) -> None:
        calls, self.calls = self.calls, []
        for call in calls:
            call()


def _event(number: int, epoch: int = 0) -> Event:
    return session_discarded(Subject(1, f"c{number}", epoch, number), reason="why")


def test_note_goes_to_the_thread_at_once_without_a_timer() -> None:
    """Nothing to gather with, nothing gathered."""
    thread = Thread()

    ThreadJournal(thread).note([_event(1)])

    assert thread.submitted == [[_event(1)]]


def test_notes_are_gathered_and_handed_over_together() -> None:
    """One timer, one operation, for all notes of a moment."""
    thread, later = Thread(), Timers()
    journal = ThreadJournal(thread, later=later)

    journal.note([_event(1)])
    journal.note([_event(2)])

    assert thread.submitted == []
    assert len(later.calls) == 1
    later.fire()
    assert thread.submitted == [[_event(1), _event(2)]]


def test_notes_are_handed_over_when_there_are_many() -> None:
    """A storm does not gather without bound, and the timer that comes later finds nothing."""
    thread, later = Thread(), Timers()
    journal = ThreadJournal(thread, later=later)

    for number in range(GATHER):
        journal.note([_event(number)])
    later.fire()

    assert [len(op) for op in thread.submitted if isinstance(op, list)] == [GATHER]


def test_record_comes_after_the_notes_before_it() -> None:
    """The order of the calls is the order of the log."""
    thread = Thread()
    journal = ThreadJournal(thread, later=Timers())
    journal.note([_event(1)])

    Deferred.fromCoroutine(journal.record([_event(2)]))

    assert thread.submitted == [[_event(1)], [_event(2)]]


def test_record_is_durable_when_it_returns() -> None:
    """It waits for the thread's answer, and raises what that says."""
    thread, results = Thread(), list[object]()
    journal = ThreadJournal(thread)
    for _ in range(2):
        answer = Deferred.fromCoroutine(journal.record([_event(1)]))
        answer.addCallbacks(lambda _: results.append("durable"), lambda failure: results.append(failure.type))

    thread.answers[0](1)
    thread.answers[1](BackendError("disk full", retryable=False))

    assert results == ["durable", BackendError]


def test_full_log_loses_only_events_without_an_epoch() -> None:
    """What a persistent session needs is never left out; the others are counted, and the log says so."""
    thread, later = Thread(), Timers()
    journal = ThreadJournal(thread, later=later)
    thread.is_full = True

    with capture_logs() as lines:
        journal.note([_event(1), _event(2, epoch=5)])
        later.fire()

    assert thread.submitted == [[_event(2, epoch=5)]]
    assert journal.lost == 1
    assert [(line["log_level"], line["count"]) for line in lines] == [("warning", 1)]


def test_notes_wait_as_long_as_it_takes_and_records_do_not() -> None:
    """Nobody waits for a note, and the next start needs it: that a Will was cleared, that a client left."""
    thread = Thread()
    journal = ThreadJournal(thread)

    journal.note([_event(1, epoch=5)])
    Deferred.fromCoroutine(journal.record([_event(2)]))

    assert thread.patience == [FOREVER_S, None]


def test_events_are_on_the_books_of_the_log_with_their_size() -> None:
    """What waits for a failing log is bounded in bytes: a Will may be large."""
    thread = Thread()
    will = will_set(
        Subject(1, "c", 5, 1), topic="w", payload=bytes(3000), qos=1, retain=False, properties=b"", delay_s=0
    )

    ThreadJournal(thread).note([_event(1), will])

    assert 5000 < thread.sizes[0] < 6000


def test_refused_notes_are_counted_one_by_one() -> None:
    """The thread answers for the whole operation."""
    thread, later = Thread(), Timers()
    journal = ThreadJournal(thread, later=later)
    journal.note([_event(1), _event(2)])
    later.fire()

    thread.answers[0](BackendError("disk full", retryable=False))

    assert journal.lost == 2


def test_every_event_is_told_to_who_listens() -> None:
    """Plug-ins and counters hear of notes and records, whatever the log does later."""
    results: list[Event] = []
    journal = ThreadJournal(Thread(), results.append, Timers())

    journal.note([_event(1)])
    Deferred.fromCoroutine(journal.record([_event(2)]))

    assert results == [_event(1), _event(2)]


def test_trimming_takes_its_turn_among_the_events() -> None:
    """Its answer is how many events went."""
    thread = Thread()
    journal = ThreadJournal(thread)
    answers: list[object] = []
    Deferred.fromCoroutine(journal.trim(TrimStatistics(5, 10))).addCallback(answers.append)

    thread.answers[0](7)

    assert thread.submitted == [TrimStatistics(5, 10)]
    assert answers == [7]


def test_events_of_persistent_sessions_are_signed_where_several_hubs_write_the_log() -> None:
    """So that everybody knows who has the session; transient ones are nobody else's."""
    thread = Thread()
    journal = ThreadJournal(thread, signature=lambda: "3.99")

    journal.note([_event(1), _event(2, epoch=5)])
    Deferred.fromCoroutine(journal.record([_event(3, epoch=5)]))

    assert [[event.hub for event in events] for events in thread.submitted] == [["", "3.99"], ["3.99"]]
