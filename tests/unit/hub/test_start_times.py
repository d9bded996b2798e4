"""The line that says how long a start took."""

from __future__ import annotations

from iothub.hub.start_times import StartTimes


def test_parts_make_up_the_whole() -> None:
    """The first one begins with the program; what comes twice is added up."""
    now = iter((12.25, 13.0, 13.5, 17.5))
    times = StartTimes(lambda: next(now), began_at=10.0)

    for part in ("loading", "servers", "joining", "servers"):
        times.ended(part)

    assert times.fields() == {"seconds": 7.5, "loading_s": 2.25, "servers_s": 4.75, "joining_s": 0.5}
