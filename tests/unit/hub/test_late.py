"""A part that is made after those that need it: bound once, and a defect before."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from iothub.base.reasons import Reason
from iothub.hub.late import LateBound, LateControl


def test_part_is_there_once_it_is_bound() -> None:
    late: LateBound[list[int]] = LateBound("the list")
    part = [1]

    assert late.bind(part) is part
    assert late() is part


def test_part_that_is_needed_too_early_or_made_twice_is_a_defect() -> None:
    """The composition is wrong, and its tests say so."""
    late: LateBound[int] = LateBound("the number")
    with pytest.raises(AssertionError, match="the number is not there yet"):
        late()
    late.bind(1)
    with pytest.raises(AssertionError, match="the number is bound already"):
        late.bind(2)


def test_message_plane_reaches_the_control_plane_that_was_made_after_it() -> None:
    calls: list[tuple[object, ...]] = []
    connection = cast("Any", object())
    control = LateControl()
    control.bind(
        SimpleNamespace(
            opened=lambda *args: calls.append(("opened", *args)),
            packet=lambda *args: calls.append(("packet", *args)),
            closed=lambda *args: calls.append(("closed", *args)),
        )
    )

    control.opened(connection)
    control.packet(connection, 0x10, b"body")
    control.closed(connection, Reason.NETWORK)

    assert calls == [
        ("opened", connection),
        ("packet", connection, 0x10, b"body"),
        ("closed", connection, Reason.NETWORK),
    ]
