"""The hook `lifecycle`: what plug-ins are told of the hub and its sessions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from iothub.hooks import Happening, Hooks
from iothub.hub.cluster.member_events import MemberEvent, MemberEventName
from iothub.hub.lifecycle_hooks import LifecycleHooks
from iothub.records.events import Event, EventType
from tests.support.in_process.control_harness import Harness, plugged


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    made = Harness(tmp_path)
    yield made
    made.close()


def event(kind: EventType, client_id: str = "c") -> Event:
    return Event(kind, 7, client_id, 5, 2_000, {"reason": "client", "device": "away"})


def test_plug_in_hears_of_sessions_by_the_names_of_tenant_and_device(harness: Harness) -> None:
    """Of one that is not in memory by what the event says."""
    recorded: list[Happening] = []
    lifecycle = LifecycleHooks(plugged(lifecycle=recorded.append), harness.hub.brokers, harness.clock)
    harness.join("c")

    lifecycle.on_event(event(EventType.SESSION_DISCONNECTED))
    lifecycle.on_event(event(EventType.SESSION_DISCONNECTED, "other"))

    word = EventType.SESSION_DISCONNECTED.value
    assert recorded == [
        Happening(word, "acme", "dev1", "c", "client", 2.0),
        Happening(word, "acme", "away", "other", "client", 2.0),
    ]


def test_plug_in_hears_of_the_hub_and_not_of_statistics(harness: Harness) -> None:
    recorded: list[Happening] = []
    lifecycle = LifecycleHooks(plugged(lifecycle=recorded.append), harness.hub.brokers, harness.clock)

    lifecycle.on_hub("hub.started")
    lifecycle.on_event(event(EventType.TENANT_SAMPLED))

    assert recorded == [Happening("hub.started", at=harness.clock.wall())]


def test_plug_in_hears_of_other_hubs(harness: Harness) -> None:
    recorded: list[Happening] = []
    lifecycle = LifecycleHooks(plugged(lifecycle=recorded.append), harness.hub.brokers, harness.clock)

    lifecycle.on_member(MemberEvent(MemberEventName.UNREACHABLE, 2, "two", "lost"))

    assert recorded == [Happening("peer_unreachable", reason="lost", at=harness.clock.wall(), node=2, hub="two")]


def test_nothing_is_done_without_a_plug_in(harness: Harness) -> None:
    lifecycle = LifecycleHooks(Hooks(), harness.hub.brokers, harness.clock)

    lifecycle.on_member(MemberEvent(MemberEventName.UP, 2, "two"))
    lifecycle.on_hub("hub.started")
    lifecycle.on_event(event(EventType.SESSION_DISCONNECTED))

    assert len(harness.hub.brokers) == 0
