"""The line of each setting in a TOML file, for messages only: `tomllib` keeps no positions. Finds the usual ways of writing.

Knows no setting. A list of tables has a name for each of them, too: `queues.choices[2]`, `queues.choices[2].tenants`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

_HEADER = re.compile(r"\s*(\[{1,2})\s*([A-Za-z0-9_.\- ]+?)\s*\]")  # of a section, or of one table of a list
_ASSIGNMENT = re.compile(r"\s*([A-Za-z0-9_.\-]+)\s*=\s*(\[)?")
_MARK = re.compile(
    r'"""(?:\\.|[^\\])*?"""|\'\'\'.*?\'\'\'|"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\'|\#[^\n]*|[\[\]{}]', re.DOTALL
)  # texts and comments in one piece, and what opens and closes


def line_numbers(text: str) -> dict[str, int]:
    """Map dotted names to lines, counted from 1."""
    lines: dict[str, int] = {}
    tables: dict[str, int] = {}
    texts = [mark.span() for mark in _MARK.finditer(text) if mark[0].startswith(('"""', "'''"))]
    section, begin, at = "", 0, 0
    for number, line in enumerate(text.splitlines(keepends=True), start=1):
        begin, at = at, at + len(line)
        if any(opened < begin < closed for opened, closed in texts):
            continue
        if header := _HEADER.match(line):
            section = header[2].replace(" ", "")
            lines.setdefault(section, number)
            if header[1] == "[[":
                tables[section] = tables.get(section, 0) + 1
                section = table_name(section, tables[section])
                lines[section] = number
        elif assignment := _ASSIGNMENT.match(line):
            name = f"{section}.{assignment[1]}" if section else assignment[1]
            lines.setdefault(name, number)
            if assignment[2]:
                for table, inner in enumerate(_tables_in(text, begin + assignment.start(2)), start=1):
                    lines.setdefault(table_name(name, table), number + text.count("\n", begin, inner))
    return lines


def table_name(name: str, number: int) -> str:
    """Return the name of one table of a list; they are counted from 1."""
    return f"{name}[{number}]"


def nearest_line(lines: Mapping[str, int], name: str) -> int | None:
    """Return where a name stands, or else what it is in."""
    while name:
        if name in lines:
            return lines[name]
        name = name.rpartition(".")[0]
    return None


def _tables_in(text: str, at: int) -> Iterator[int]:
    """Yield where the tables of the list begin that begins at a place."""
    depth = 0
    for mark in _MARK.finditer(text, at):
        if mark[0] == "{" and depth == 1:
            yield mark.start()
        depth += (mark[0] in "[{") - (mark[0] in "]}")
        if not depth:
            return
