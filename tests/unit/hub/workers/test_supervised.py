"""What a supervisor makes of the bytes that a process says (`iothub.hub.workers.supervised`)."""

from __future__ import annotations

import json

import pytest

from iothub.hub.workers.supervised import Report

READY = b'{"ready": true}\n'
DRAINING = b'{"draining": true}\n'


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


@pytest.mark.parametrize("line", [b"no report\n", b"5\n", b"[]\n"])
def test_bytes_of_another_program_change_nothing(line: bytes) -> None:
    report = Report()

    assert not report.received(line)

    assert (report.is_ready, report.error) == (False, None)
