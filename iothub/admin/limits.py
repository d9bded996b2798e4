"""Limits as a script reads and writes them: by name, in place of the grammar's text.

Knows no layer and no store. A stored limit that the grammar refuses is shown too, so that it can be corrected.
"""

from __future__ import annotations

from collections.abc import Mapping

from iothub.base.errors import ConfigError
from iothub_services.quota.grammar import format_window, parse_limits

Values = dict[str, int | str | list[str]]


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


def words_for(values: Mapping[str, int | str | list[str]]) -> list[str]:
    """Return the same as arguments of the grammar; it checks them."""
    return [f"{name}={','.join(value) if isinstance(value, list) else value}" for name, value in values.items()]


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
