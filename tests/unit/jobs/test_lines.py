"""`iothub.jobs.lines`: what a job's process says, and what is not taken for it."""

from __future__ import annotations

import json

import pytest

from iothub.jobs.lines import LINE_LIMIT_BYTES, Done, Failed, Note, Report, Stage, as_object, read_line

SAID = [
    Stage("read", 5, 10, "records"),
    Note("two events are damaged"),
    Done({"rows": 7, "log": {"events": 3}}),
    Failed("conflict", "the log has a gap"),
]


@pytest.mark.parametrize("report", SAID, ids=lambda report: type(report).__name__)
def test_line_comes_back_as_it_was_said(report: Report) -> None:
    assert read_line(json.dumps(as_object(report)).encode() + b"\n") == report


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"Setting default log level\n",
        b"[1]\n",
        b"{",
        b"{}\n",
        b'{"event": "stag"}\n',
        b'{"event": ["stage"]}\n',
        b"{\xff}\n",
        b'{"a":' * 10_000,
        b'{"event": "note", "text": "' + b"x" * LINE_LIMIT_BYTES + b'"}',
    ],
    ids=lambda line: repr(line[:20]),
)
def test_other_lines_are_nobodys_answer(line: bytes) -> None:
    assert read_line(line) is None


def test_fields_of_a_wrong_type_are_nothing() -> None:
    """Another process wrote it: a defect there must not end the run that watches it."""
    assert read_line(b'{"event":"stage","name":5,"done":-1,"of":true}') == Stage("", 0, 0, "records")
    assert read_line(b'{"event":"done","figures":[1]}') == Done({})
    assert read_line(b'{"event":"failed"}') == Failed("", "")
