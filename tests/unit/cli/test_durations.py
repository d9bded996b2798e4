"""Durations on the command line: seconds for the program, words for people."""

from __future__ import annotations

from collections.abc import Callable

import click
import pytest

from iothub.cli.durations import seconds
from tests.support.in_process.command import Cli, Result


@pytest.mark.parametrize(("text", "read"), [("250ms", 0.25), ("90s", 90.0), ("2h", 7200.0), (None, None)])
def test_duration_is_read_as_seconds(text: str | None, read: float | None) -> None:
    option = click.Option(["--timeout"])

    assert seconds(click.Context(click.Command("any")), option, text) == read


@pytest.mark.parametrize(
    "words",
    [
        ("ban", "add", "acme", "device", "dev1", "--for"),
        ("retain", "delete", "acme", "a/#", "--timeout"),
        ("token-issuer", "update", "acme", "fleet", "--leeway"),
    ],
)
def test_wrong_duration_names_its_option(acme: Cli, words: tuple[str, ...]) -> None:
    assert acme(*words, "soon", code=2).err.startswith(f"iothub: {words[-1]} 'soon': expected a duration such as")


def test_help_says_that_a_duration_is_expected(call: Callable[..., Result]) -> None:
    assert "--timeout DURATION" in call("retain", "delete", "--help").out
