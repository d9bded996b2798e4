"""Whole numbers on the command line: one text for all that are none, or out of bounds."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest

from iothub.cli.main import NOUNS, command
from iothub.cli.numbers import WholeNumber
from tests.support.in_process.command import Cli


@pytest.mark.parametrize("given", ["0", "7", "-1", "1.5", "x", "", "²", "9" * 5000])
def test_number_out_of_bounds_or_none_names_the_bounds(given: str) -> None:
    with pytest.raises(click.BadParameter, match=r"'\S*': expected a whole number from 1 to 6$"):
        WholeNumber(1, 6).convert(given, None, None)


def test_number_without_a_greatest_one_fits_a_database() -> None:
    assert WholeNumber(1).convert("9" * 18, None, None) == 10**18 - 1
    with pytest.raises(click.BadParameter, match="expected a whole number, 1 or more, of at most 18 digits"):
        WholeNumber(1).convert("1" + "0" * 18, None, None)


@pytest.mark.parametrize(
    "words",
    [
        ("client", "list", "acme", "--limit", "none"),
        ("job", "show", "9" * 20),
        ("plan", "set", "standard", "--weight", "heavy"),
        ("cert", "self-signed", "--days", "1d"),
    ],
)
def test_wrong_number_is_answered_alike_by_every_command(acme: Cli, words: tuple[str, ...]) -> None:
    assert f"{words[-1]!r}: expected a whole number" in acme(*words, code=2).err


def test_every_number_that_a_person_gives_is_of_this_type() -> None:
    """Those of click itself say `x>=1`, or nothing of the bounds."""
    strange = [
        f"{path} {parameter.opts[0]}"
        for path, verb in _commands("", command)
        for parameter in verb.params
        if isinstance(parameter.type, type(click.INT) | click.IntRange)
        and not isinstance(parameter.type, WholeNumber)
        and not getattr(parameter, "hidden", False)
    ]

    assert strange == []


def _commands(path: str, found: click.Command) -> Iterator[tuple[str, click.Command]]:
    yield path, found
    if isinstance(found, click.Group):
        context = click.Context(found)
        for name in found.list_commands(context) if path else NOUNS:
            inner = found.get_command(context, name)
            assert inner is not None
            yield from _commands(f"{path} {name}", inner)
