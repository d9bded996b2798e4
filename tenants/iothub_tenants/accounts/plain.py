"""Turns the records of this package into plain rows: what `-o json` prints.

Knows no record by name: any frozen dataclass with words, numbers, tuples and times in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from enum import Enum


def plain(record: object) -> dict[str, object]:
    """Return the record's fields in their order: enums as their words, `..._ms` as ISO times (null for 0) under the bare name.

    Fields that are hidden from `repr` (secrets) are left out.
    """
    if not is_dataclass(record):
        raise TypeError(f"expected a record, got {type(record).__name__}")
    row: dict[str, object] = {}
    for item in fields(record):
        if item.repr:
            name, value = _plain(item.name, getattr(record, item.name))
            row[name] = value
    return row


def _plain(name: str, value: object) -> tuple[str, object]:
    if name.endswith("_ms") and isinstance(value, int):
        return name.removesuffix("_ms"), iso(value) if value else None
    return name, _value(value)


def _value(value: object) -> object:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, tuple):
        return [_value(item) for item in value]
    if isinstance(value, Mapping):
        return dict(value)
    return plain(value) if is_dataclass(value) and not isinstance(value, type) else value


def iso(milliseconds: int) -> str:
    """Write Unix milliseconds as UTC, to the second: `2026-11-21T15:33:00Z`."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
