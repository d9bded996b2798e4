"""Limits as a script reads them, by name, and as a person does; and the help that names them all.

Knows no layer and no store. A stored limit that the grammar refuses is shown too, so that it can be corrected.
"""

from __future__ import annotations

from collections.abc import Mapping

import click

from iothub.base.errors import ConfigError
from iothub.cli.app import Command
from iothub_services.quota.grammar import DRY_RUN, format_window, parse_limits
from iothub_services.quota.names import Kind, Quota

Values = dict[str, int | str | list[str]]


class LimitsCommand(Command):
    """A command with LIMIT as argument, whose help names all limits."""

    def format_epilog(self, _context: click.Context, formatter: click.HelpFormatter) -> None:
        for title, kinds in (("Limits", (Kind.COUNT, Kind.BOUND)), ("Limits with a window", (Kind.RATE,))):
            with formatter.section(title):
                formatter.write_text(", ".join(quota.value for quota in Quota if quota.kind in kinds))


def values_of(text: str) -> Values:
    """Return limits by name: a number (bytes, seconds), "unlimited", or for a rate a list of "number/window".

    A dry-run limit has the name `dry-run:NAME`. `name=value`, with a list joined by commas, is what `quota set` accepts.
    """
    values: Values = {}
    for part in text.split():
        name, _, value = part.partition("=")
        try:
            values[name] = _value(part)
        except ConfigError:
            values[name] = value
    return values


def words_of(text: str) -> str:
    """Return the limits of one name for a table, without the name: `500/1s,1000000/1d, dry-run 100/1s`."""
    words = []
    for part in text.split():
        name, _, value = part.partition("=")
        words.append(f"dry-run {value}" if name.startswith(DRY_RUN) else value)
    return ", ".join(words)


def with_values(row: Mapping[str, object]) -> dict[str, object]:
    """Return a row whose `limits` are an object."""
    return {**row, "limits": values_of(str(row["limits"]))}


def _value(part: str) -> int | str | list[str]:
    ((quota, windows),) = parse_limits(part).items()
    if windows[0].limit is None:
        return "unlimited"
    if windows[0].seconds == 0:
        return windows[0].limit
    return [f"{window.limit}/{format_window(quota, window).partition('/')[2]}" for window in windows]
