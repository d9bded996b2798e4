"""How limits lie in the database: one row per quota name, each holding that name's part of the grammar's canonical text.

Knows no layers: plans, tenants and devices all store their limits through these functions. The grammar is `iothub_services.quota.grammar`'s.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sqlalchemy import ColumnElement, Connection, Table, delete, insert, select

from iothub.base.errors import ConfigError
from iothub_services.quota.grammar import DRY_RUN, Limits, Window, format_limits, parse_limits, parse_name
from iothub_services.quota.names import Quota


def load(connection: Connection, table: Table, where: ColumnElement[bool]) -> Limits:
    """Read the limits of one owner."""
    return parse_limits(load_text(connection, table, where))


def load_text(connection: Connection, table: Table, where: ColumnElement[bool]) -> str:
    """Read the limits of one owner as the grammar's text, without a look at what it says."""
    values = connection.execute(select(table.c.value).where(where).order_by(table.c.name)).scalars()
    return " ".join(values)


def overlay(texts: Iterable[str]) -> str:
    """Return what several texts say together, without a look at what they say: of each name the first one's, a dry run and what is enforced apart."""
    parts: dict[str, str] = {}
    for text in texts:
        for part in text.split():
            parts.setdefault(_name_of(part), part)
    return " ".join(parts[name] for name in sorted(parts, key=_by_name))


def without(text: str, hiding: str) -> str:
    """Return the parts of `text` whose name `hiding` does not have."""
    hidden = names_in(hiding)
    return " ".join(part for part in text.split() if _name_of(part) not in hidden)


def names_in(text: str) -> set[str]:
    """Return the names of limits in a text; that of a dry run has its prefix."""
    return {_name_of(part) for part in text.split()}


def merge(connection: Connection, table: Table, owner: Mapping[str, object], added: Limits) -> None:
    """Put limits into one owner's rows. An enforced limit replaces only the enforced one of its name, a dry run only the dry run.

    Raises:
        ConfigError: a dry run of a limit that is not counted.
    """
    where = owner_is(table, owner)
    for name, value in merged(load(connection, table, where), added).items():
        connection.execute(delete(table).where(where, table.c.name == name))
        connection.execute(insert(table).values({**owner, "name": name, "value": value}))


def merged(known: Limits, added: Limits) -> dict[str, str]:
    """Return, by name, the rows that `merge` writes for an owner that has `known`.

    Raises:
        ConfigError: a dry run of a limit that is not counted.
    """
    refuse_silent_trials(added)
    return {quota.value: _row(quota, windows, known.get(quota, ())) for quota, windows in added.items()}


def remove(connection: Connection, table: Table, owner: Mapping[str, object], names: Iterable[str]) -> int:
    """Remove limits by name, whatever their value, and return how many there were. Raises ConfigError for an unknown name."""
    known = [parse_name(name).value for name in names]
    return connection.execute(delete(table).where(owner_is(table, owner), table.c.name.in_(known))).rowcount


def _row(quota: Quota, windows: tuple[Window, ...], known: tuple[Window, ...]) -> str:
    replaced = {window.is_dry_run for window in windows}
    kept = tuple(window for window in known if window.is_dry_run not in replaced)
    return format_limits({quota: (*windows, *kept)})


def _name_of(part: str) -> str:
    return part.partition("=")[0]


def _by_name(name: str) -> tuple[str, bool]:
    return name.removeprefix(DRY_RUN), name.startswith(DRY_RUN)


def refuse_silent_trials(added: Limits) -> None:
    """Raise ConfigError if there is a dry run of a limit that is not counted."""
    for quota, windows in added.items():
        if not quota.has_trial and any(window.is_dry_run for window in windows):
            raise ConfigError(
                f"{quota.value} has no dry run: only counts and rates report what they would have rejected"
            )


def owner_is(table: Table, owner: Mapping[str, object]) -> ColumnElement[bool]:
    """The condition that a row is this owner's; `owner` names at least one column."""
    first, *others = (table.c[column] == value for column, value in owner.items())
    for condition in others:
        first = first & condition
    return first
