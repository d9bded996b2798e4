"""The process of the REST API beside a hub: started anew when it ends, later each time, and never the end of the hub."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from twisted.internet.task import Clock

from iothub.config.datadir import DataDir
from iothub.hub.workers.api_process import (
    LEAST_PAUSE_S,
    LOOK_S,
    MISSES,
    MOST_PAUSE_S,
    PROBE_S,
    SHORT_LIFE_S,
    ApiProcess,
    restarts,
)

COMMAND = ("python", "-m", "iothub.cli", "admin", "serve")  # iothub.cli.__main__


class Child:
    """A process that runs until a test says how it ended."""

    pid = 1

    def __init__(self) -> None:
        self.code: int | None = None
        self.is_deaf = False
        self.signals: list[str] = []

    def poll(self) -> int | None:
        return self.code

    def wait(self, timeout: float | None = None) -> int:
        if self.code is None:
            raise subprocess.TimeoutExpired(COMMAND, timeout or 0)
        return self.code

    def terminate(self) -> None:
        self.signals.append("TERM")
        self.code = None if self.is_deaf else 0

    def kill(self) -> None:
        self.signals.append("KILL")
        self.code = -9


class Bench:
    """A hub's reactor and data directory, and the processes that were started."""

    def __init__(self, path: Path, command: Sequence[str] = COMMAND) -> None:
        self.reactor = Clock()
        self.data_dir = DataDir(path)
        self.children: list[Child] = []
        self.fails = False
        self.probes: list[str] = []
        self.answers: bool | None = True  # None: none yet
        self.api = ApiProcess(command, self.data_dir, self.reactor, self._launch, self._probe, lambda: 1.8e9)

    def _launch(self, command: Sequence[str]) -> Child:
        assert command == COMMAND
        if self.fails:
            raise BlockingIOError(11, "Resource temporarily unavailable")
        self.children.append(Child())
        return self.children[-1]

    def _probe(self, _reactor: object, address: str, on_answer: Callable[[bool], None]) -> None:
        self.probes.append(address)
        if self.answers is not None:
            on_answer(self.answers)

    def pass_s(self, seconds: float) -> None:
        """Let time pass as a reactor does."""
        for _ in range(round(seconds / LOOK_S)):
            self.reactor.advance(LOOK_S)

    @property
    def cause(self) -> object:
        return (self.data_dir.read_api() or {}).get("cause")


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_process_that_ends_is_started_again(bench: Bench) -> None:
    bench.api.start()
    bench.pass_s(SHORT_LIFE_S)
    bench.children[0].code = -9

    bench.pass_s(LOOK_S)
    assert bench.cause == "its process ended with signal 9; its lines in the log say more"
    bench.pass_s(LEAST_PAUSE_S)

    assert len(bench.children) == 2


def test_process_that_keeps_ending_is_started_later_each_time(bench: Bench) -> None:
    bench.api.start()
    pauses = []
    for _ in range(9):
        bench.children[-1].code = 7
        bench.pass_s(LOOK_S)
        pauses.append(bench.reactor.getDelayedCalls()[0].getTime() - bench.reactor.seconds())
        bench.pass_s(pauses[-1])

    assert pauses[:3] == [LEAST_PAUSE_S, 2 * LEAST_PAUSE_S, 4 * LEAST_PAUSE_S]
    assert max(pauses) == MOST_PAUSE_S


def test_cause_that_the_process_has_noted_stays(bench: Bench) -> None:
    """Such as a port in use: it says more than an exit code."""
    bench.api.start()
    bench.data_dir.write_api({"cause": "the API cannot listen on 127.0.0.1:8081"})
    bench.children[0].code = 7

    bench.pass_s(LOOK_S)

    assert bench.cause == "the API cannot listen on 127.0.0.1:8081"


def test_process_that_cannot_be_started_is_tried_again(bench: Bench) -> None:
    bench.fails = True
    bench.api.start()
    assert bench.cause == "it cannot be started: Resource temporarily unavailable"

    bench.fails = False
    bench.pass_s(LEAST_PAUSE_S)

    assert len(bench.children) == 1


def test_process_that_does_not_answer_is_killed_and_started_again(bench: Bench) -> None:
    bench.api.start()
    bench.data_dir.write_api({"address": "http://127.0.0.1:8081"})
    bench.pass_s(PROBE_S)
    bench.answers = False
    bench.pass_s((MISSES - 1) * PROBE_S)
    assert bench.children[0].signals == []

    bench.pass_s(PROBE_S + LOOK_S)

    assert bench.children[0].signals == ["KILL"]
    assert bench.probes == ["http://127.0.0.1:8081"] * (MISSES + 1)
    assert str(bench.cause).startswith("it did not answer 3 probes")
    bench.pass_s(LEAST_PAUSE_S)
    assert len(bench.children) == 2


def test_answer_ends_a_silence(bench: Bench) -> None:
    bench.api.start()
    bench.data_dir.write_api({"address": "http://127.0.0.1:8081"})
    for answers in (False, False, True, False, False):
        bench.answers = answers
        bench.pass_s(PROBE_S)

    assert bench.children[0].signals == []


def test_process_that_starts_is_not_asked(bench: Bench) -> None:
    """It has no address yet, or has said why it cannot."""
    bench.api.start()
    bench.pass_s(2 * PROBE_S)
    bench.data_dir.write_api({"cause": "its port is in use"})
    bench.pass_s(2 * PROBE_S)

    assert bench.probes == []


def test_answer_about_a_process_that_has_ended_is_not_about_the_next(bench: Bench) -> None:
    late: list[Callable[[bool], None]] = []
    api = ApiProcess(COMMAND, bench.data_dir, bench.reactor, bench._launch, lambda *given: late.append(given[2]))
    api.start()
    bench.data_dir.write_api({"address": "http://127.0.0.1:8081"})
    bench.pass_s(MISSES * PROBE_S)
    bench.children[0].code = 1
    bench.pass_s(LOOK_S + LEAST_PAUSE_S)
    for on_answer in late:
        on_answer(False)

    assert len(bench.children) == 2
    assert bench.children[1].signals == []


def test_restarts_are_counted_where_the_hub_reads_them(bench: Bench) -> None:
    """Also when the process has written that it is up again: a counter never falls, and an alarm does not end and come back."""
    bench.api.start()
    bench.data_dir.write_api({"address": "http://127.0.0.1:8081"})
    bench.answers = False
    bench.pass_s(MISSES * PROBE_S + LOOK_S + LEAST_PAUSE_S)
    bench.answers = True
    bench.data_dir.write_api({"address": "http://127.0.0.1:8081"})

    assert restarts(bench.data_dir) == {"ended": 0, "silent": 1}
    assert restarts(DataDir.of_worker(bench.data_dir.path, 2)) == {}
    assert bench.data_dir.read_api_restarts()["silent_at"] == 1.8e9
    assert bench.cause is None


@pytest.mark.parametrize(("is_deaf", "signals"), [(False, ["TERM"]), (True, ["TERM", "KILL"])])
def test_process_ends_with_the_hub(bench: Bench, is_deaf: bool, signals: list[str]) -> None:
    bench.api.start()
    bench.data_dir.write_api({"address": "http://127.0.0.1:8081"})
    bench.children[0].is_deaf = is_deaf

    bench.api.end()

    assert bench.children[0].signals == signals
    assert bench.data_dir.read_api() is None


def test_without_a_command_there_is_nothing(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ())
    bench.api.start()
    bench.api.end()

    assert (bench.children, bench.reactor.getDelayedCalls()) == ([], [])
