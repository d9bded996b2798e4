"""Values that are made for every connection: frozen for the type checker, without the price of it.

Knows no value. A frozen dataclass is made by one call of `object.__setattr__` for each field, which takes longer than all other work on a small one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def value(cls: type[T]) -> type[T]:
    """Make a slotted dataclass, equal and hashable by its fields. Invariant: nobody sets a field of one (mypy refuses it)."""
    return dataclass(slots=True, unsafe_hash=True)(cls)
