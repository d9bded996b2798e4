"""Limits as a person reads them, and the help that names them all.

Knows no layer and no store; as a script reads them: `iothub.admin.limits`.
"""

from __future__ import annotations

import click

from iothub.cli.app import Command
from iothub_services.quota.grammar import DRY_RUN
from iothub_services.quota.names import Kind, Quota


class LimitsCommand(Command):
    """A command with LIMIT as argument, whose help names all limits."""

    def format_epilog(self, _context: click.Context, formatter: click.HelpFormatter) -> None:
        for title, kinds in (("Limits", (Kind.COUNT, Kind.BOUND)), ("Limits with a window", (Kind.RATE,))):
            with formatter.section(title):
                formatter.write_text(", ".join(quota.value for quota in Quota if quota.kind in kinds))


def words_of(text: str) -> str:
    """Return the limits of one name for a table, without the name: `500/1s,1000000/1d, dry-run 100/1s`."""
    words = []
    for part in text.split():
        name, _, value = part.partition("=")
        words.append(f"dry-run {value}" if name.startswith(DRY_RUN) else value)
    return ", ".join(words)
