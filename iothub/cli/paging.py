"""`--limit` and `--after` of the lists: how many rows are printed, and where a list goes on.

Knows no list. A row has a place: the text that --after takes, made of columns that a table shows.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import click

from iothub.base.errors import NotFoundError
from iothub.cli.app import App
from iothub.cli.numbers import WholeNumber
from iothub.cli.output import Row

Place = Callable[[Row], str]

LIMIT = click.option(
    "--limit", type=WholeNumber(1), default=1000, show_default=True, help="Maximum number of rows."
)  # of a list that a hub makes
_ANY_LIMIT = click.option("--limit", type=WholeNumber(1), help="Maximum number of rows. Default: all.")
_ALL = 10**18


def after(what: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a command `--after`. `what`: what a place is called, such as "name"."""
    return click.option("--after", default="", help=f"Start after this {what} (the last one of the previous page).")


def name_of(row: Row) -> str:
    """Return the place of a row in a list by name."""
    return str(row["name"])


@dataclass(frozen=True, slots=True)
class Page:
    """The part of a list that is printed: what follows `after`, at most `limit` rows; None: all."""

    limit: int | None
    after: str

    @property
    def to_read(self) -> int:
        """Return how many rows are read behind `after`: one more than are printed says whether more follow."""
        return _ALL if self.limit is None else self.limit + 1

    def show(self, app: App, rows: Sequence[Row], *columns: str, place: Place = name_of) -> None:
        """Print the first of `to_read` rows, and say where the next page begins."""
        cut = rows[: self.limit]
        app.rows(cut, *columns)
        app.say_more_follow(place(cut[-1]) if len(cut) < len(rows) else None)

    def by_name(self, rows: Sequence[Row]) -> list[Row]:
        """Return what follows of a whole list by name; the row of that name may be gone."""
        return [row for row in rows if name_of(row) > self.after]

    def by_place(self, rows: Sequence[Row], place: Place) -> Sequence[Row]:
        """Return what follows of a whole list in another order. Raises NotFoundError: no row has that place."""
        if not self.after:
            return rows
        for at, row in enumerate(rows):
            if place(row) == self.after:
                return rows[at + 1 :]
        raise NotFoundError(f"--after {self.after!r}: not in this list, or not any more; start again without --after")


WHOLE = Page(None, "")


def paged(what: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command that prints a list both options: its function gets `page`. `what`: as in `after`."""

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(function)
        def run(*given: Any, limit: int | None, after: str, **named: Any) -> None:
            function(*given, page=Page(limit, after), **named)

        return _ANY_LIMIT(after_option(run))

    after_option = after(what)
    return decorate
