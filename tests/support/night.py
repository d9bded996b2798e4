"""Longer forms of a test, which only `make nightly` runs: more parameters in place of tests that are left out.

Knows no test.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def at_night(*values: T) -> Sequence[T]:
    """Return the values at night, none by day: `[SHORT, *at_night(LONG)]`."""
    return values if os.environ.get("IOTHUB_NIGHTLY") else ()
