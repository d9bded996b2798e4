"""The form of a file that `apply` reads: objects, lists, texts and limits where they are expected, and nothing unknown.

Knows no step. Each function raises ConfigError, which names the place in the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, TypeVar

from iothub.admin.apply_checks import placed
from iothub.base.errors import ConfigError
from iothub_tenants.identity import shown

Row = Mapping[str, Any]
E = TypeVar("E", bound=Enum)

NOT_APPLIED = ("token_issuers", "bans", "streams")  # an export has them; they have commands of their own
OF_EXPORT = ("format", "version", "pepper")
RULES_TO_COME = "rules of streams that do not exist yet"

_KINDS: dict[type, str] = {str: "a text", bool: "true or false", int: "a whole number", list: "a list of texts"}


def require_readable(row: Row, where: str) -> None:
    """Raise ConfigError unless an object says nothing of its format, or is of the one that `tenant export` writes."""
    from iothub_tenants.accounts import transfer

    expected = {"format": transfer.FORMAT, "version": transfer.VERSION}
    for name, value in expected.items():
        if row.get(name, value) != value:
            raise ConfigError(f"{where}.{name}: expected {value}, not {shown(str(row[name]))}")


def mapping(given: object, where: str) -> Row:
    if not isinstance(given, Mapping):
        raise ConfigError(f"{where}: expected an object with names and values")
    return given


def listed(row: Row, name: str, where: str) -> list[Any]:
    found = row.get(name, [])
    if not isinstance(found, list):
        raise ConfigError(f"{where}.{name}: expected a list")
    return found


def text(row: Row, name: str, where: str, *, is_empty_allowed: bool = False) -> str:
    found = row.get(name)
    if not isinstance(found, str) or not (found or is_empty_allowed):
        raise ConfigError(f"{where}.{name}: expected a text")
    return found


def require_kinds(row: Row, kinds: Mapping[str, type], where: str) -> None:
    """Raise ConfigError if a value is there and of another kind: a step would fail with a defect after others were done."""
    for key, kind in kinds.items():
        found = row.get(key)
        is_kind = type(found) is kind and (kind is not list or all(isinstance(each, str) for each in row[key]))
        if key in row and not is_kind:
            raise ConfigError(f"{where}.{key}: expected {_KINDS[kind]}")


def word(kind: type[E], text: str, where: str) -> E:
    try:
        return kind(text)
    except ValueError:
        known = ", ".join(str(each.value) for each in kind)
        raise ConfigError(f"{where}: expected one of {known}, not {shown(text)}") from None


def require_known(row: Row, names: tuple[str, ...], where: str) -> None:
    unknown = [str(key) for key in row if key not in names]
    if unknown:
        raise ConfigError(f"{where}: unknown: {', '.join(unknown)}; expected {', '.join(names)}")


def limits(words: list[str], where: str) -> dict[str, str]:
    """Return each limit by its name, checked. Raises ConfigError."""
    from iothub_services.quota.grammar import parse_limits
    from iothub_tenants.accounts import limits

    with placed(where):
        limits.refuse_silent_trials(parse_limits(map(str, words)))
    return {word.partition("=")[0]: word for text in words for word in str(text).split()}


def left_of(key: str, limits: Mapping[str, str]) -> tuple[str, list[str]]:
    """Return the quota of a limit that is pruned, and what the file has of it: a limit and its dry run are removed together."""
    from iothub_services.quota.grammar import DRY_RUN

    quota = key.removeprefix(DRY_RUN)
    return quota, [limits[each] for each in (quota, DRY_RUN + quota) if each in limits]


def is_same_limit(has: str | None, wanted: str) -> bool:
    from iothub_services.quota.grammar import parse_limits

    return has is not None and parse_limits(has) == parse_limits(wanted)
