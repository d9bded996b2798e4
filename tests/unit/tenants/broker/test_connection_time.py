"""`connection_time`: connection time is the area below the number of connections."""

from __future__ import annotations

from iothub.testing.clock import ManualClock
from iothub_tenants.broker.connection_time import ConnectionTime


def test_time_is_counted_for_every_connection() -> None:
    """Two connections for a second each, and two more for the second that they share."""
    clock = ManualClock()
    time = ConnectionTime(clock)
    clock.advance(5)
    time.on_reserved()
    clock.advance(1)
    time.on_reserved()
    clock.advance(1)
    time.on_released()
    clock.advance(1)

    assert time.held_ms() == 4000


def test_look_in_between_changes_nothing() -> None:
    """Metering looks every minute, and adds up differences."""
    clock = ManualClock()
    time = ConnectionTime(clock)
    time.on_reserved()
    looks = []
    for _ in range(10):
        clock.advance(0.1)
        looks.append(time.held_ms())

    assert looks[-1] == 1000
    assert looks == sorted(looks)
