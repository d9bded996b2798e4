"""`place_time`: connection time is the area below the number of connections."""

from __future__ import annotations

from iothub.testing.clock import ManualClock
from iothub_tenants.broker.place_time import PlaceTime


def test_time_is_counted_for_every_place_that_is_held() -> None:
    """Two connections for a second each, and two more for the second that they share."""
    clock = ManualClock()
    places = PlaceTime(clock)
    clock.advance(5)
    places.taken()
    clock.advance(1)
    places.taken()
    clock.advance(1)
    places.given_back()
    clock.advance(1)

    assert places.held_ms() == 4000


def test_look_in_between_changes_nothing() -> None:
    """Metering looks every minute, and adds up differences."""
    clock = ManualClock()
    places = PlaceTime(clock)
    places.taken()
    looks = []
    for _ in range(10):
        clock.advance(0.1)
        looks.append(places.held_ms())

    assert looks[-1] == 1000
    assert looks == sorted(looks)
