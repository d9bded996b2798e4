"""What a person or a script reads: aligned tables, JSON or CSV on standard output, everything else on standard error.

Knows no noun. Text that a client chose is made printable first: a topic must not drive the operator's terminal.
"""

from __future__ import annotations

import codecs
import csv
import io
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

import click

from iothub.base.errors import UnavailableError
from iothub.base.text import printable

Row = Mapping[str, object]
FORMATS = ("table", "json", "jsonl", "csv")
_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # a spreadsheet would run it


class OutputError(UnavailableError):
    """Standard output cannot be written, for example because a disk is full."""


def write_rows(rows: Sequence[Row], columns: Sequence[str], form: str) -> None:
    """Write a list. JSON: an array of whole objects (jsonl: one per line); table, csv: the given columns."""
    if form == "json":
        write_json(list(rows))
        return
    if form == "jsonl":
        for row in rows:
            write_json_line(row)
        return
    if form == "csv":
        _write_csv(rows, columns)
        return
    if not rows:
        say("(none)")
        return
    cells = [[cell(row.get(column)) for column in columns] for row in rows]
    widths = [max(len(column), *(len(line[at]) for line in cells)) for at, column in enumerate(columns)]
    for line in [[column.upper().replace("_", " ") for column in columns], *cells]:
        padded = (text.ljust(width) for text, width in zip(line, widths, strict=True))
        write_text("  ".join(padded).rstrip())


def write_record(record: Row, form: str) -> None:
    """Write one object: JSON, CSV with one row, or one `name  value` line per field."""
    if form == "json":
        write_json(record)
        return
    if form == "jsonl":
        write_json_line(record)
        return
    if form == "csv":
        _write_csv([record], list(record))
        return
    width = max((len(name) for name in record), default=0)
    for name, value in record.items():
        write_text(f"{name.replace('_', ' ').ljust(width)}  {cell(value)}".rstrip())


def write_json(content: object) -> None:
    write_text(as_json(content, "json"))


def write_json_line(content: object) -> None:
    write_text(as_json(content, "jsonl"))


def as_json(content: object, form: str) -> str:
    """Return an object as the form `json`, for people too, or `jsonl`, one line, has it.

    What standard output cannot hold, or a terminal would obey, is escaped.
    """
    text = json.dumps(content, indent=2 if form == "json" else None, default=str, ensure_ascii=not _takes_utf8())
    return "\n".join(line if line.isprintable() else _escaped(line) for line in text.split("\n"))


def _takes_utf8() -> bool:
    return codecs.lookup(getattr(sys.stdout, "encoding", None) or "ascii").name == "utf-8"


def _escaped(line: str) -> str:
    return "".join(mark if mark.isprintable() else json.dumps(mark)[1:-1] for mark in line)


def _write_csv(rows: Sequence[Row], columns: Sequence[str]) -> None:
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(columns)
    lines.writerows([[_csv_cell(row.get(column)) for column in columns] for row in rows])
    write_text(text.getvalue(), end="")


def _csv_cell(value: object) -> str:
    """Nothing for nothing; a text that a spreadsheet would take for a formula is marked as text."""
    if value is None or value == "":
        return ""
    text = cell(value)
    return f"'{text}" if isinstance(value, str) and text.startswith(_FORMULA) else text


def write_text(text: str, *, end: str = "\n") -> None:
    """Write a piece of the answer."""
    with _writing():
        click.echo(f"{text}{end}", nl=False)


def write_bytes(octets: bytes) -> None:
    """Write the answer as it is."""
    with _writing():
        sys.stdout.buffer.write(octets)
        sys.stdout.buffer.flush()


@contextmanager
def _writing() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputError(f"standard output cannot be written: {error.strerror}") from None


def say(message: str, *, end: str = "\n") -> None:
    """Print a message on standard error; if that is closed, the exit code says enough."""
    with suppress(OSError):
        click.echo(f"{message}{end}", err=True, nl=False)


def is_on_terminal() -> bool:
    """Say whether a person reads standard output."""
    return sys.stdout.isatty()


def counted(count: int, noun: str) -> str:
    """Return `1 message`, `2 messages`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def cell(value: object) -> str:
    """Return a value as one printable piece of a line."""
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return printable(" ".join(f"{name}={cell(part)}" for name, part in value.items())) or "-"
    if isinstance(value, list | tuple):
        return printable(", ".join(cell(part) for part in value)) or "-"
    return printable(str(value))
