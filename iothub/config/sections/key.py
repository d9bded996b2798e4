"""One setting: its kind, its default and a sentence. Knows no section."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar, cast

from iothub.config.value_types import Kind

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Key:
    """What the program knows about one setting besides its default."""

    kind: Kind[object]
    sentence: str


def key(kind: Kind[T], default: T, sentence: str) -> T:
    """Declare one setting (typed as its value, as `dataclasses.field` is)."""
    return field(default=default, metadata={"key": Key(cast("Kind[object]", kind), sentence)})
