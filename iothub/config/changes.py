"""What of a new configuration a running hub may apply: the settings that are declared so, and no others.

Knows no part of a hub. The result is a whole configuration again, so nobody who gets it can see half a change.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar

from iothub.config.loader import settings_of, value_of
from iothub.config.sections import Config, Key, Listener, Listeners, Reload

S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class Change:
    """One setting whose value is to be another. `value`: the new one, as TOML."""

    name: str
    value: str
    reload: Reload


@dataclass(frozen=True, slots=True)
class Changes:
    """`config`: what the hub runs with when the changes are applied. `all`: in the order of the reference page."""

    config: Config
    all: tuple[Change, ...]

    def names(self, reload: Reload) -> list[str]:
        """Return the settings that are applied, or those that need a restart."""
        return [change.name for change in self.all if change.reload is reload]


def changes_between(running: Config, wanted: Config) -> Changes:
    """Compare what a hub runs with and what its sources say now. A setting that needs a restart is named each time until then."""
    config = _merged(running, wanted)
    return Changes(config, tuple(_changes(running, wanted, config)))


def _changes(running: Config, wanted: Config, merged: Config) -> Iterator[Change]:
    for setting in settings_of(merged):
        value = value_of(wanted, setting.name)
        if value != value_of(running, setting.name):
            is_applied = value == value_of(merged, setting.name)
            yield Change(setting.name, setting.key.kind.write(value), Reload.NOW if is_applied else Reload.RESTART)


def _merged(running: S, wanted: S) -> S:
    """Return `running` with those values of `wanted` that may change now."""
    if isinstance(running, Listener) and isinstance(wanted, Listener) and _place(running) != _place(wanted):
        return running  # it is turned on, off or moved: another listener, which opens at the restart
    values: dict[str, object] = {}
    for field in dataclasses.fields(running):  # type: ignore[arg-type]  # a section
        old, new = getattr(running, field.name), getattr(wanted, field.name)
        key: Key | None = field.metadata.get("key")
        if isinstance(running, Listeners) and isinstance(wanted, Listeners) and field.name == "named":
            values[field.name] = _merged_named(running, wanted)
        elif key is None:
            values[field.name] = _merged(old, new)
        elif key.reload is Reload.NOW:
            values[field.name] = new
    return dataclasses.replace(running, **values)  # type: ignore[type-var]


def _merged_named(running: Listeners, wanted: Listeners) -> tuple[tuple[str, Listener], ...]:
    """Return the listeners that either has: a new one is off until the restart, one that is gone stays until then."""
    names = sorted(dict(running.named) | dict(wanted.named))
    return tuple((name, _merged(running.find(name), wanted.find(name))) for name in names)


def _place(listener: Listener) -> tuple[str, int | None]:
    return listener.bind, listener.port
