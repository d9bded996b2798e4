"""A duration on the command line, such as "30s" or "7d", as seconds.

Knows no option.
"""

from __future__ import annotations

import click

from iothub.errors import ConfigError
from iothub.units import parse_duration


class Duration(click.ParamType):
    """Reads what the settings read. Raises ConfigError with the option's name: one line, as for other mistakes."""

    name = "DURATION"

    def convert(self, value: str | float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if not isinstance(value, str):
            return value
        try:
            return parse_duration(value)
        except ValueError as error:
            option = "a duration" if param is None else param.opts[0]
            raise ConfigError(f"{option} {value!r}: {error}") from None


DURATION = Duration()
