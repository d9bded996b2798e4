"""What the hub says of its readiness."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from iothub.health import NodeHealth


def node() -> Any:
    """A hub in good order."""
    return SimpleNamespace(
        settings=SimpleNamespace(metrics=SimpleNamespace(tenant_series_max=1)),
        waiting=SimpleNamespace(reason=""),
        telemetry=SimpleNamespace(is_ready=True),
        is_stopping=False,
        writer=SimpleNamespace(is_failing=False),
        journal_thread=SimpleNamespace(is_failing=False),
        watch=SimpleNamespace(no_writes="", is_overloaded=False),
        plane=SimpleNamespace(overload_level=lambda: 2),
    )


def test_hub_that_refuses_new_connections_is_not_ready() -> None:
    """For memory of either kind, and only as long as it does."""
    hub = node()
    health = NodeHealth(hub)
    assert health.reasons() == []

    hub.watch.is_overloaded = True
    assert health.reasons() == ["new connections are refused: resident memory is above overload.memory_limit"]

    hub.watch.is_overloaded = False
    hub.plane.overload_level = lambda: 3
    assert health.reasons() == ["new connections are refused: overload.buffered_bytes is used up"]

    hub.plane.overload_level = lambda: 2
    assert health.reasons() == []
