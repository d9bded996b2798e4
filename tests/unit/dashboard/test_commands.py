"""Every command that a page shows is one of the command line's: `iothub.dashboard`, by its source."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import iothub.dashboard
from iothub.cli.main import command as iothub_command

SOURCES = sorted(Path(iothub.dashboard.__file__).parent.rglob("*.py"))


def shown(source: Path) -> Iterator[tuple[int, list[str | None]]]:
    """Yield the words of each call of `command`, and where; None: one that is made as the page is drawn."""
    for node in ast.walk(ast.parse(source.read_text())):
        called = node.func if isinstance(node, ast.Call) else None
        name = called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""
        if isinstance(node, ast.Call) and name == "command":
            yield node.lineno, [each.value if isinstance(each, ast.Constant) else None for each in node.args]


CALLS = [
    pytest.param(words, id=f"{source.stem}:{line}") for source in SOURCES for line, words in shown(source) if words
]


def test_there_are_some() -> None:
    assert len(CALLS) > 20


@pytest.mark.parametrize("words", CALLS)
def test_command_of_a_page_is_there(words: list[str | None]) -> None:
    """Nouns, verb and options; a word that depends on the page stands where the command takes an argument."""
    command: click.Command = iothub_command
    rest = list(words)
    while isinstance(command, click.Group) and rest and rest[0] is not None:
        found = command.get_command(click.Context(command), rest.pop(0) or "")
        assert found is not None, f"`iothub {' '.join(map(str, words))}` is no command"
        command = found
    known = {option for each in command.params for option in (*each.opts, *each.secondary_opts)}
    options = {str(word) for word in rest if word is not None and str(word).startswith("-")}

    assert (
        isinstance(command, click.Group) or options <= known
    )  # a noun or a verb that depends on the page has options of its own
