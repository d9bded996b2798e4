"""How a hub stops: stores close in their order and in their time, and nothing is closed under a thread that still works."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest
from structlog.testing import capture_logs
from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock

from iothub.hub.stop import Stop
from iothub.testing.clock import ManualClock


class Harness:
    """A hub whose stores close at once, unless they hang."""

    def __init__(self, *hanging: str) -> None:
        self.reactor = Clock()
        self.hanging = hanging
        self.closed: list[str] = []
        some = SimpleNamespace
        self.process = some(
            reactor=self.reactor,
            clock=ManualClock(),
            threads=some(run=self.run),
            settings=some(node=some(stop_timeout_s=10.0)),
            waiting=some(end=lambda: self.closed.append("not waited for")),
        )
        self.stores = some(hbase=None, shared_quota=None, states=some(close=lambda: None), statistics_log=None)
        self.writers = some(
            writer=some(close=lambda _timeout_s: "queues" not in hanging),
            journal=some(flush=lambda: self.closed.append("flushed")),
            journal_thread=some(close=lambda _timeout_s: "events" not in hanging),
            statistics_thread=None,
        )
        self.control = some(
            streaming=some(close=lambda _timeout_s: True),
            metering=some(finish=self.finish),
            cluster=None,
            event_topics=some(finish=lambda: None),
        )
        self.monitoring = some(store_alarms=some(end=lambda: self.closed.append("over")))

    async def finish(self) -> None:
        self.closed.append("metered")

    def run(self, name: str, call: Callable[..., Any], *args: Any) -> Deferred[Any]:
        what = name.removeprefix("closing.")
        if what in self.hanging and what == "states":
            return Deferred()
        self.closed.append(what)
        return succeed(call(*args))

    def close(self) -> Deferred[bool]:
        return Deferred.fromCoroutine(Stop(cast("Any", self), cast("Any", None)).close_stores())


def test_stores_close_in_their_order() -> None:
    """Streams and queues first, then what was noted of sessions, then their log and their states."""
    harness = Harness()

    assert harness.close().called

    assert harness.closed == ["streams", "queues", "flushed", "metered", "events", "states"]


def test_other_hubs_hear_of_the_end_when_the_log_has_everything() -> None:
    """Nothing of theirs is followed any more by then; a log that hangs may miss something, and they will see the silence."""
    for hanging, said in (
        ((), ["followed", "events", "deregistered"]),
        (("events",), ["followed", "events", "silence"]),
    ):
        harness = Harness(*hanging)

        async def stop_following(harness: Harness) -> None:
            harness.closed.append("followed")

        async def leave(harness: Harness, *, has_logged_all: bool) -> None:
            harness.closed.append("deregistered" if has_logged_all else "silence")

        harness.control.cluster = SimpleNamespace(
            stop_following=partial(stop_following, harness), leave=partial(leave, harness)
        )
        harness.close()
        harness.reactor.advance(20)

        assert [word for word in harness.closed if word in ("followed", "events", "deregistered", "silence")] == said


def test_states_stay_open_under_a_log_that_hangs() -> None:
    """Its thread works with them; the next start folds what is missing."""
    harness = Harness("events")

    assert harness.close().called

    assert harness.closed == ["streams", "queues", "flushed", "metered", "events"]


@pytest.mark.parametrize("others", [(), ("queues",)])
def test_states_that_hang_are_given_up_in_time(others: tuple[str, ...]) -> None:
    """The stop has a limit, whatever the file system does."""
    harness = Harness("states", *others)
    done = harness.close()
    assert not done.called

    with capture_logs() as lines:
        harness.reactor.advance(3.1)

    assert done.called
    assert [line["event"] for line in lines] == [
        "session states not written in time; the next start writes the rest from the log"
    ]


@pytest.mark.parametrize("is_silent", [False, True])
def test_hub_that_lets_go_of_hbase_raises_no_alarm_about_it(is_silent: bool) -> None:
    """First the word that it is over, then the connections: at the end, or when time is."""
    harness = Harness(*(["states"] if is_silent else []))
    harness.stores.hbase = SimpleNamespace(close=lambda: harness.closed.append("hbase"))

    done = harness.close()
    harness.reactor.advance(3.1)

    assert done.called
    assert harness.closed[-3:] == ["over", "not waited for", "hbase"]
