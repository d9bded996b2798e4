"""Values of `iothub.base.values`: equal by what they hold, keys of a dict, and small."""

from __future__ import annotations

import dataclasses

from iothub.base.values import value


@value
class _Point:
    x: int
    y: int = 0


def test_values_are_equal_by_their_fields() -> None:
    assert _Point(1) == _Point(1, 0)
    assert _Point(1) != _Point(2)
    assert {_Point(1): "found"}[_Point(x=1)] == "found"
    assert dataclasses.replace(_Point(1), y=2) == _Point(1, 2)


def test_value_has_no_dict() -> None:
    """Which would take more memory than all its fields."""
    assert not hasattr(_Point(1), "__dict__")
