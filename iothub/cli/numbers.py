"""A whole number on the command line, in an option or an argument.

Knows no option.
"""

from __future__ import annotations

from typing import Any

import click

_DIGITS = 18  # what the numbers of every database hold


class WholeNumber(click.IntRange):
    """Says in one way what was expected, also of a text that is no number and of one too long to be stored."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            number = super().convert(value, param, ctx)
        except click.BadParameter:
            number = None
        if number is None or number >= 10**_DIGITS:
            self.fail(f"{str(value)[:40]!r}: expected a whole number{self._bounds()}", param, ctx)
        return number

    def _bounds(self) -> str:
        if self.max is None:
            return f", {self.min} or more, of at most {_DIGITS} digits"
        return f" from {self.min} to {self.max}"
