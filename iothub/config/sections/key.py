"""One setting: its kind, its default, a sentence, and when a change takes effect. Knows no section."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeVar, cast

from iothub.config.value_types import Kind

T = TypeVar("T")


class Reload(StrEnum):
    """When a changed value takes effect.

    NOW: a reload applies it to the running hub (`iothub.hub.reload`), or only commands read it, each time. A test proves it for each setting.
    """

    NOW = "now"
    RESTART = "restart"


@dataclass(frozen=True, slots=True)
class Key:
    """What the program knows about one setting besides its default."""

    kind: Kind[object]
    sentence: str
    reload: Reload = Reload.RESTART


def key(kind: Kind[T], default: T, sentence: str, reload: Reload = Reload.RESTART) -> T:
    """Declare one setting (typed as its value, as `dataclasses.field` is)."""
    return field(default=default, metadata={"key": Key(cast("Kind[object]", kind), sentence, reload)})
