"""Run the tests of a module against each of its mutants, every one in a forked process; the tree itself is never changed.

The tests are imported and collected once; after each fork the code of the mutated function is exchanged, so that a mutant costs the tests alone.

Invariant: a mutant dies of a test that failed, of a signal or of its time limit; anything else ends the run.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import json
import os
import resource
import select
import signal
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import hypothesis
import pytest
from _pytest.main import pytest_runtestloop

from tests.nightly.mutation.mutants import Mutant, mutants_of

WORK = Path("build/mutants")
LEAST_LIMIT_S = 30.0
TIMES_THE_BASELINE = 10
MOST_MEMORY_BYTES = 8 << 30
SURVIVED, KILLED, TIMED_OUT = "survived", "killed", "timed out"
_ENDS = {0: SURVIVED, 1: KILLED}
_BROKEN = 70
_HAS_FAILED = (pytest.Session.Failed, pytest.Session.Interrupted)


class BrokenRunError(Exception):
    """The run says nothing of the tests: they fail without a mutant, or this program failed."""


@dataclass(frozen=True, slots=True)
class Target:
    """A module and the tests that must kill its mutants, the most precise first."""

    path: str
    tests: tuple[str, ...]

    @property
    def module(self) -> str:
        parts = Path(self.path).with_suffix("").parts
        return ".".join(parts if parts[0] == "iothub" else parts[1:])


class Results:
    """How the mutants of one module ended, in a file: an interrupted run goes on where it was.

    Only deaths are taken from an earlier run, while the function is the same: a survivor is tried again, since a test may have come meanwhile.
    A change of the tests themselves is not noticed: `make clean` begins anew.
    """

    def __init__(self, target: Target) -> None:
        self._path = WORK / f"{target.module}.jsonl"
        self._earlier = {key: outcome for key, outcome in self._read() if outcome != SURVIVED}
        self._path.write_text("".join(json.dumps(entry) + "\n" for entry in self._earlier.items()))

    def is_dead(self, mutant: Mutant) -> bool:
        return _key(mutant) in self._earlier

    def add(self, mutant: Mutant, outcome: str) -> None:
        with self._path.open("a") as file:
            file.write(json.dumps((_key(mutant), outcome)) + "\n")

    def of(self, mutants: Iterable[Mutant]) -> list[tuple[Mutant, str]]:
        known = dict(self._read())
        return [(mutant, known[_key(mutant)]) for mutant in mutants]

    def _read(self) -> Iterator[tuple[str, str]]:
        with suppress(FileNotFoundError):
            for line in self._path.read_text().splitlines():
                yield tuple(json.loads(line))


def _key(mutant: Mutant) -> str:
    return hashlib.sha256(f"{mutant.function} {mutant.body}".encode()).hexdigest()


def prepare() -> None:
    """Make the working folder, and let Hypothesis try the same examples for each mutant."""
    (WORK / "tmp").mkdir(parents=True, exist_ok=True)
    phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)  # whether it fails, not where at the shortest
    hypothesis.settings.register_profile("mutants", derandomize=True, database=None, deadline=None, phases=phases)
    hypothesis.settings.load_profile("mutants")


def try_mutants(target: Target, is_wanted: Callable[[Mutant], bool]) -> list[tuple[Mutant, str]]:
    """Say of every mutant of a module how it ended. Raises BrokenRunError."""
    results = Results(target)
    mutants = [mutant for mutant in mutants_of(Path(target.path).read_text()) if is_wanted(mutant)]
    rest = [mutant for mutant in mutants if not results.is_dead(mutant)]
    if rest:
        trial = _Trial(target, rest, results)
        if (code := _in_fork(lambda: _pytest(target, [trial]), None)) != 0:
            raise BrokenRunError(f"{target.path}: its tests fail without a mutant (exit {code}): {_log(target)}")
    return results.of(mutants)


class _Trial:
    """A plug-in of pytest: instead of running the collected tests once, it runs them for each mutant."""

    def __init__(self, target: Target, mutants: list[Mutant], results: Results) -> None:
        self._target = target
        self._mutants = mutants
        self._results = results

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if session.testsfailed:
            return False  # pytest's own loop says what cannot be collected
        began = time.monotonic()
        if _in_fork(lambda: _run_tests(session), None) != 0:
            session.testsfailed = 1
            return True
        limit_s = LEAST_LIMIT_S + TIMES_THE_BASELINE * (time.monotonic() - began)
        for mutant in self._mutants:
            code = _in_fork(lambda one=mutant: self._run_exchanged(session, one), limit_s)
            self._results.add(mutant, _outcome(code, self._target))
        return True

    def _run_exchanged(self, session: pytest.Session, mutant: Mutant) -> int:
        codes = dict(_codes(compile(mutant.source, self._target.path, "exec")))
        _function(self._target.module, mutant.function).__code__ = codes[mutant.function]
        return _run_tests(session)


def _run_tests(session: pytest.Session) -> int:
    with suppress(*_HAS_FAILED):
        pytest_runtestloop(session)
    return int(session.testsfailed > 0)


def _codes(code: CodeType) -> Iterator[tuple[str, CodeType]]:
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield one.co_qualname, one
            yield from _codes(one)


def _function(module: str, name: str) -> FunctionType:
    """Return the function that the code of a module calls by this qualified name, below its decorators."""
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = inspect.getattr_static(found, part)
    found = getattr(found, "fget", found)
    found = getattr(found, "__func__", found)
    return inspect.unwrap(found)


def _pytest(target: Target, plugins: list[Any]) -> int:
    with _log(target).open("ab") as log:
        for output in (1, 2):
            os.dup2(log.fileno(), output)
    quiet = ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # of Hypothesis, whose profile is chosen before
    options = [
        "-q",
        "-x",
        "-p",
        "no:randomly",
        "--tb=native",  # others parse the source, which in Python 3.11 may end in SystemError
        "--timeout=0",
        f"--basetemp={WORK / 'tmp' / target.module}",
    ]
    return int(pytest.main([*options, *quiet, *target.tests], plugins=plugins))


def _log(target: Target) -> Path:
    return WORK / f"{target.module}.log"


def _outcome(code: int | None, target: Target) -> str:
    if code is None:
        return TIMED_OUT
    if code not in _ENDS and code >= 0:
        raise BrokenRunError(f"{target.path}: a run ended with exit {code}: see {_log(target)}")
    return _ENDS.get(code, KILLED)  # below 0: by a signal


def _in_fork(run: Callable[[], int], limit_s: float | None) -> int | None:
    """Return how a run in a process of its own ended, below 0 by a signal; None: it had to be killed."""
    pid = os.fork()
    if pid == 0:
        code = _BROKEN
        try:
            os.setpgid(0, 0)
            resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY_BYTES, MOST_MEMORY_BYTES))
            code = run()
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    with suppress(ProcessLookupError):
        handle = os.pidfd_open(pid)
    has_ended = bool(select.select([handle], [], [], limit_s)[0])
    os.close(handle)
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)  # and what it may have started
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status) if has_ended else None
