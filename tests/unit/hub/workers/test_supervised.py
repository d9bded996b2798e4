"""What a supervisor makes of the bytes that a process says (`iothub.hub.workers.supervised`)."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import suppress

import pytest

from iothub.hub.workers import supervised
from iothub.hub.workers.supervised import Report, Reporter

READY = b'{"ready": true}\n'
DRAINING = b'{"draining": true}\n'


@pytest.fixture
def pipe(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The end of the report that a supervisor reads."""
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    monkeypatch.setattr(supervised, "REPORT", writing)
    yield reading
    os.close(reading)
    os.close(writing)


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_report_is_read_in_whatever_parts_it_comes(size: int) -> None:
    said = b"\n\n" + READY + b"\n" + DRAINING + b"\n"
    report = Report()

    news = [report.received(said[at : at + size]) for at in range(0, len(said), size)]

    assert news.count(True) == 1
    assert (report.is_ready, report.is_draining) == (True, True)


def test_start_that_failed_has_its_error() -> None:
    report = Report()
    line = json.dumps({"error": "a port is in use", "details": ["1883"], "exit_code": 7}).encode()

    assert report.received(line + b"\n")

    assert report.error is not None
    assert (str(report.error), report.error.exit_code, report.error.details) == ("a port is in use", 7, ("1883",))


def test_last_word_about_a_drain_counts() -> None:
    report = Report(is_draining=True)
    report.received(READY)
    assert report.is_draining

    assert not report.received(DRAINING + b'{"draining": false}\n')

    assert not report.is_draining


@pytest.mark.parametrize("is_draining", [True, False])
def test_drain_is_not_lost_while_the_supervisor_is_frozen(pipe: int, is_draining: bool) -> None:
    """Its pipe is full then, and the first line that fits says it."""
    reporter, report = Reporter(), Report(is_draining=not is_draining)
    reporter.ready()
    with suppress(BlockingIOError):
        while True:
            os.write(supervised.REPORT, bytes(1))
    reporter.drains(is_draining)
    os.read(pipe, 1 << 20)

    reporter.beat()

    report.received(os.read(pipe, 1 << 20))
    assert report.is_draining is is_draining


@pytest.mark.parametrize("line", [b"no report\n", b"5\n", b"[]\n"])
def test_bytes_of_another_program_change_nothing(line: bytes) -> None:
    report = Report()

    assert not report.received(line)

    assert (report.is_ready, report.error) == (False, None)
