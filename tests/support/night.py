"""Longer forms of a test, which only `make nightly` runs: more parameters, or larger numbers, in place of tests that are left out.

Knows no test.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

IS_NIGHT = bool(os.environ.get("IOTHUB_NIGHTLY"))


def at_night(*values: T) -> Sequence[T]:
    """Return the values at night, none by day: `[SHORT, *at_night(LONG)]`."""
    return values if IS_NIGHT else ()


def by_day(day: T, night: T) -> T:
    """Return one value by day and the other, the larger one, at night."""
    return night if IS_NIGHT else day
