"""A duration on the command line, such as "30s" or "7d", as seconds.

Knows no option.
"""

from __future__ import annotations

import click

from iothub.base.errors import ConfigError
from iothub.base.units import parse_duration, parse_size


def seconds(_context: click.Context, option: click.Parameter, text: str | None) -> float | None:
    """Read the value of an option, as its callback: what the settings read, too; None when it is not given.

    Raises:
        ConfigError: It is no duration; one line with the option's name, as for other mistakes.
    """
    if text is None:
        return None
    try:
        return parse_duration(text)
    except ValueError as error:
        raise ConfigError(f"{option.opts[0]} {text!r}: {error}") from None


def size_bytes(_context: click.Context, option: click.Parameter, text: str) -> int:
    """Read a size, as `seconds` a duration. Raises ConfigError."""
    try:
        return parse_size(text)
    except ValueError as error:
        raise ConfigError(f"{option.opts[0]} {text!r}: {error}") from None
