"""Who waits for the hub at the door, and for how long."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from iothub.testing.clock import ManualClock
from iothub_tenants.walks.doorstep import Doorstep
from tests.support.control_house import now


@pytest.mark.parametrize(("give_up_s", "patience_s"), [(30.0, 9.0), (3.0, 3.0)])
def test_doorstep_answers_before_the_client_is_closed_without_a_word(give_up_s: float, patience_s: float) -> None:
    """A little less than the connect timeout, or as long as a store is tried, if that is shorter; each one once."""
    clock, answered = ManualClock(), list[str]()
    doorstep = Doorstep(clock, 10.0, give_up_s)
    first, second, gone = [object() for _ in range(3)]
    waiting: list[tuple[Any, str]] = [(first, "first"), (gone, "gone")]
    for connection, name in waiting:
        doorstep.wait(connection, partial(answered.append, name))
    doorstep.leave(gone)  # type: ignore[arg-type]
    clock.advance(1.0)
    doorstep.wait(second, lambda: answered.append("second"))  # type: ignore[arg-type]

    clock.advance(patience_s - 1.1)
    now(doorstep.look())
    assert answered == []
    clock.advance(0.2)
    now(doorstep.look())
    now(doorstep.look())

    assert answered == ["first"]
    assert len(doorstep) == 1
