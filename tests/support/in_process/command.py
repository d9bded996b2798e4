"""The command line inside the test's own process: quick, with standard input, output and exit code in hand."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click


@dataclass(frozen=True)
class Result:
    """What one command did."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@dataclass(frozen=True)
class Cli:
    """Runs commands on one data directory; a command that ends otherwise than expected fails the test."""

    data_dir: Path
    call: Callable[..., Result]

    def __call__(self, *words: str, stdin: bytes = b"", code: int = 0) -> Result:
        result = self.call("--data-dir", str(self.data_dir), *words, stdin=stdin)
        assert result.code == code, (words, result)
        assert "Traceback" not in result.err
        return result

    def rows(self, *words: str) -> Any:
        return self(*words, "-o", "json").json


def commands(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    """Yield every verb below a command, each with its words."""
    if not isinstance(command, click.Group):
        yield " ".join(path), command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        inner = command.get_command(context, name)
        assert inner is not None
        yield from commands(inner, (*path, name))
