"""The forms of an answer: what a script can read back."""

from __future__ import annotations

import csv
import io
import json

import pytest

from iothub.cli import output
from tests.support.in_process.command import Cli

ROWS = [
    {"name": "one", "count": 1, "parts": ["a", "b"], "is_open": True, "note": None},
    {"name": "=HYPERLINK(1)", "count": -2, "parts": [], "is_open": False, "note": 'x,"y"'},
]


def test_jsonl_is_one_object_per_line(capsys: pytest.CaptureFixture[str]) -> None:
    output.write_rows(ROWS, ("name",), "jsonl")

    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == ROWS


def test_csv_reads_back_and_runs_no_formula(capsys: pytest.CaptureFixture[str]) -> None:
    """A text that a client chose is a text, also in a spreadsheet; a negative number stays one."""
    output.write_rows(ROWS, ("name", "count", "parts", "is_open", "note"), "csv")
    lines = list(csv.reader(io.StringIO(capsys.readouterr().out)))

    assert lines[0] == ["name", "count", "parts", "is_open", "note"]
    assert lines[1] == ["one", "1", "a, b", "yes", ""]
    assert lines[2] == ["'=HYPERLINK(1)", "-2", "-", "no", 'x,"y"']


def test_csv_of_nothing_has_its_header(capsys: pytest.CaptureFixture[str]) -> None:
    output.write_rows([], ("name", "count"), "csv")

    assert capsys.readouterr().out == "name,count\n"


@pytest.mark.parametrize("form", ["json", "jsonl"])
def test_json_escapes_what_drives_a_terminal_and_nothing_else(form: str) -> None:
    """A client chose the text; whoever reads the JSON gets it as it is."""
    harmful = "a\x1b[2J\x7f\x9b\u202e\u2028\ud800\U000e0001\n"

    text = output.as_json([harmful, "Prüfstand €"], form)

    assert json.loads(text) == [harmful, "Prüfstand €"]
    assert text.replace("\n", "").isprintable()
    assert '"Prüfstand €"' in text
    assert "\\u009b\\u202e\\u2028\\ud800\\udb40\\udc01\\n" in text


@pytest.mark.parametrize("form", ["json", "jsonl"])
def test_change_answers_with_the_object(cli: Cli, form: str) -> None:
    assert json.loads(cli("tenant", "create", "acme", "-o", form).out)["name"] == "acme"


def test_record_is_one_row_of_csv(acme: Cli) -> None:
    (row,) = csv.DictReader(io.StringIO(acme("tenant", "show", "acme", "-o", "csv").out))

    assert (row["name"], row["state"]) == ("acme", "active")


def test_generated_secret_is_in_every_form(acme: Cli) -> None:
    """It is shown this once, so no form may swallow it."""
    for number, form in enumerate(output.FORMATS):
        result = acme("device", "create", "acme", f"new{number}", "-o", form)
        assert len(result.out.strip()) > 20, form
