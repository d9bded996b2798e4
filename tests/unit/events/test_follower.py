"""The follower of the session log: every event in its order, and a time up to which everything is known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from twisted.internet.defer import Deferred

from iothub.base.errors import BackendError, UnavailableError
from iothub.records.events import Event, Subject, session_expired
from iothub.testing.clock import ManualClock
from iothub_services.events.follower import Follower
from iothub_services.events.memory import MemoryEvents
from iothub_services.events.port import DamagedEvent, LoggedEvent, Offsets


class Log(MemoryEvents):
    """`error`: what the next reading raises; `damaged`: what is damaged; `during`: what happens while its end is asked."""

    def __init__(self) -> None:
        super().__init__(2)
        self.error: Exception | None = None
        self.damaged: list[DamagedEvent] = []
        self.during: Callable[[], None] | None = None

    def end(self, *args: Any) -> Offsets:
        if self.during is not None:
            self.during()
        return super().end(*args)

    def read(self, *args: Any) -> list[LoggedEvent | DamagedEvent]:
        error, self.error = self.error, None
        if error is not None:
            raise error
        places = {(each.partition, each.offset): each for each in self.damaged}
        return [places.get((logged.partition, logged.offset), logged) for logged in super().read(*args)]


class Harness:
    """A follower whose thread is the test, and whoever it tells."""

    def __init__(self, after: Offsets = ()) -> None:
        self.log, self.clock = Log(), ManualClock()
        self.applied: list[str] = []
        self.places: list[Offsets] = []
        self.known: list[float] = []
        self.alarms: list[tuple[str, str]] = []
        self.damaged: list[tuple[str, str, str]] = []
        self.failure: Exception | None = None
        self.follower = Follower(
            cast("Any", self.log),
            after,
            self.apply,
            lambda call: call(),
            self.clock,
            on_known=self.known.append,
            on_alarm=lambda word, text: self.alarms.append((word, text)),
            on_damage=lambda *record: self.damaged.append(record),
        )

    async def apply(self, page: list[Event], place: Offsets) -> None:
        failure, self.failure = self.failure, None
        if failure is not None:
            raise failure
        self.applied += [event.client_id for event in page]
        self.places.append(place)

    def write(self, *client_ids: str) -> None:
        self.log.append([session_expired(Subject(7, client_id, 1, 0)) for client_id in client_ids])


def test_follower_applies_what_is_new_once() -> None:
    """From where the start left off, in each partition in its order."""
    harness = Harness()
    harness.write("a", "b")
    assert harness.follower.round()
    harness.write("c")
    harness.follower.round()
    harness.follower.round()

    assert sorted(harness.applied) == ["a", "b", "c"]
    later = Harness(harness.log.end())
    later.log = harness.log
    assert later.follower.round()
    assert later.applied == []


def test_what_is_known_is_what_was_durable_when_the_round_began() -> None:
    """Not what came while the log was read."""
    harness = Harness()
    began = harness.clock.monotonic()
    harness.log.during = lambda: harness.clock.advance(0.2)

    harness.follower.round()

    assert harness.known == [began]
    assert harness.follower.known_at == began


def test_one_round_answers_all_who_asked_before_it_and_none_who_asked_later() -> None:
    """A question is about what is durable when it is asked."""
    harness = Harness()
    early = [harness.follower.catch_up() for _ in range(3)]
    late: list[Deferred[None]] = []
    harness.clock.advance(0.1)

    def ask() -> None:
        harness.clock.advance(0.1)
        late.append(harness.follower.catch_up())
        harness.log.during = None

    harness.log.during = ask
    harness.follower.round()
    assert [answer.called for answer in early] == [True] * 3
    assert not late[0].called
    harness.clock.advance(0.1)

    harness.follower.round()

    assert late[0].called


def test_log_that_cannot_be_read_raises_an_alarm_and_nothing_is_known() -> None:
    """When it can be read again, it goes on from where it was."""
    harness = Harness()
    harness.write("a")
    harness.log.error = BackendError("away", retryable=True)

    assert not harness.follower.round()
    assert (harness.known, harness.alarms[-1][0], harness.applied) == ([], "follower_failing", [])
    assert harness.follower.round()

    assert harness.applied == ["a"]
    assert harness.alarms[-1] == ("follower_failing", "")


def test_page_that_could_not_be_applied_is_read_again() -> None:
    """A tenant that could not be read, for one."""
    harness = Harness()
    harness.write("a")
    harness.failure = UnavailableError("the accounts do not answer")

    assert [harness.follower.round(), harness.follower.round()] == [False, True]
    assert harness.applied == ["a"]


def test_damaged_event_is_counted_and_passed_over() -> None:
    """Once, and what is behind it is applied."""
    harness = Harness()
    harness.write("a", "a")
    partition = next(at for at, offset in enumerate(harness.log.end()) if offset)
    harness.log.damaged = [DamagedEvent(partition, 1, "why")]

    assert [harness.follower.round(), harness.follower.round()] == [True, True]

    assert (harness.applied, harness.alarms) == (["a"], [])
    assert harness.damaged == [("events", f"{partition}:1", "why")]


def test_who_waits_hears_when_the_hub_ends() -> None:
    """Whether the thread ran or not."""
    harness = Harness()
    waiting = harness.follower.catch_up()

    harness.follower.close(1.0)

    for answer in (waiting, harness.follower.catch_up()):
        failures: list[Any] = []
        answer.addErrback(failures.append)
        assert failures[0].check(UnavailableError)


def test_thread_follows_and_ends() -> None:
    """Asked, it does not wait for its time."""
    harness = Harness()
    harness.write("a")
    harness.follower.set_period(60.0)
    harness.follower.start()
    harness.follower.hurry()
    harness.follower.close(10.0)

    assert harness.applied in (["a"], [])
    assert not harness.follower._thread.is_alive()
