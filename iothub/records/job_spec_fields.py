"""The fields of one JSON object, taken one after another; what is missing, wrong or left over is refused by its dotted name.

Knows no object of ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from iothub.base.errors import ConfigError
from iothub.base.units import Endpoint, parse_endpoint

_MISSING = object()


class Fields:
    """One object. `where`: how messages name it."""

    def __init__(self, value: object, where: str) -> None:
        if not isinstance(value, dict):
            raise ConfigError(f"{where}: expected a JSON object, got {_kind(value)}")
        self._left: dict[str, object] = dict(value)
        self._where = where

    def has(self, name: str) -> bool:
        """Say whether it is there and not null."""
        if self._left.get(name) is None:
            self._left.pop(name, None)
            return False
        return True

    def text(self, name: str, default: str | None = None) -> str:
        value = self._take(name, default)
        if not isinstance(value, str) or (not value and default is None):
            raise self._wrong(name, "a text", value)
        return value

    def choice(self, name: str, *words: str) -> str:
        value = self._take(name, None)
        if value not in words:
            raise self._wrong(name, f"one of {', '.join(words)}", value)
        return str(value)

    def number(self, name: str, default: int | None = None) -> int:
        value = self._take(name, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise self._wrong(name, "a whole number from 0 on", value)
        return value

    def seconds(self, name: str, default: float) -> float:
        value = self._take(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
            raise self._wrong(name, "a number of seconds", value)
        return float(value)

    def path(self, name: str, default: Path | None) -> Path | None:
        value = self._left.pop(name, None)
        if value is None:
            return default
        if not isinstance(value, str) or not value:
            raise self._wrong(name, "the path of a file", value)
        return Path(value)

    def endpoints(self, name: str) -> tuple[Endpoint, ...]:
        value = self._take(name, None)
        if not isinstance(value, list) or not value or not all(isinstance(part, str) for part in value):
            raise self._wrong(name, 'a list such as ["host:port"]', value)
        try:
            return tuple(parse_endpoint(part) for part in value)
        except ValueError as error:
            raise ConfigError(f"{self._where}: {name}: {error}") from None

    def options(self, name: str) -> Mapping[str, bool | int | float | str]:
        """Return a flat object of plain values; none is an empty one."""
        value = self._left.pop(name, None)
        given = {} if value is None else value
        if not isinstance(given, dict):
            raise self._wrong(name, "a JSON object", value)
        for key, each in given.items():
            if not isinstance(each, bool | int | float | str):
                raise self._wrong(f"{name}.{key}", "a plain value", each)
        return dict(given)

    def inner(self, name: str) -> Fields:
        return Fields(self._take(name, None), f"{self._where}: {name}")

    def refuse_others(self) -> None:
        """Raise ConfigError when something was not taken."""
        if self._left:
            raise ConfigError(
                f"{self._where}: unknown key {min(self._left)!r}: runner and job are of different versions"
            )

    def _take(self, name: str, default: object) -> object:
        value = self._left.pop(name, _MISSING)
        if value is not _MISSING and value is not None:
            return value
        if default is None:
            raise ConfigError(f"{self._where}: {name!r} is missing")
        return default

    def _wrong(self, name: str, expected: str, value: object) -> ConfigError:
        return ConfigError(f"{self._where}: {name}: expected {expected}, got {_kind(value)}")


def _kind(value: object) -> str:
    """Return a value's words for a message: short, and never a whole object."""
    return type(value).__name__ if isinstance(value, dict | list) else repr(value)[:60]
