"""How far a hub is, and what its supervisor hears of it (`iothub.hub.phase`)."""

from __future__ import annotations

from iothub.hub.phase import Phase


def test_begin_and_end_of_a_drain_are_told() -> None:
    changes: list[bool] = []
    phase = Phase(on_drain=changes.append)

    phase.begin_drain()
    phase.end_drain()

    assert changes == [True, False]


def test_drain_of_a_stop_is_not_told() -> None:
    """A worker that is stopped alone drains first (`cluster.drain_on_stop`); the one that follows it serves."""
    changes: list[bool] = []
    phase = Phase(on_drain=changes.append)
    phase.stop()

    phase.begin_drain()

    assert phase.is_draining
    assert changes == []
