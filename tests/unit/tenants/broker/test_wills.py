"""A Will that fires is a PUBLISH: it takes from the same meters, waits for them, or is dropped by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from iothub_services.quota.names import Quota
from iothub_tenants.broker import wills
from tests.support import property_names as names
from tests.support.control_harness import Harness
from tests.support.mqtt_clients import Client


@pytest.fixture
def metered(make_harness: Callable[..., Harness]) -> Callable[[str], Harness]:
    """A harness whose tenant has these limits, and somebody who watches its Wills."""

    def make(limits: str) -> Harness:
        harness = make_harness()
        harness.limit(limits)
        return harness

    return make


def watch(harness: Harness) -> Client:
    watcher = harness.join("watcher", username="acme/dev2")
    watcher.subscribe(("w/#", 0))
    return watcher


def die(harness: Harness, count: int, **options: Any) -> None:
    """So many clients lose their connections at once."""
    connected = [
        harness.join(f"c{number}", will=(f"w/{number}", b"gone", 0, False), **options) for number in range(1, count + 1)
    ]
    for client in connected:
        client.drop()


def topics(client: Client) -> list[str]:
    return [packet.topic for packet in client.fence()]


def test_wills_use_up_the_rate_and_wait_for_it(metered: Callable[[str], Harness]) -> None:
    """In their order, none of them lost."""
    harness = metered("publish_messages=2/1s")
    watcher = watch(harness)
    die(harness, 4)
    harness.settle()
    waiting = len(harness.acme._wills)

    for _ in range(20):
        harness.pass_time(0.3)

    assert waiting >= 2
    assert topics(watcher) == ["w/1", "w/2", "w/3", "w/4"]
    assert harness.recorder.limits == []
    assert len(harness.acme._wills) == 0


def test_wills_count_in_the_days_allowance_and_are_dropped_beyond_it(metered: Callable[[str], Harness]) -> None:
    """Never silently: the drop has a name and a count, the limit is told."""
    harness = metered("publish_messages=2/1d")
    watcher = watch(harness)
    die(harness, 3)

    assert topics(watcher) == ["w/1", "w/2"]
    assert harness.acme.plane.counters.drops()["quota"] == 1
    assert harness.recorder.limits == [("day_messages", 1)]


def test_will_that_would_wait_too_long_is_dropped(metered: Callable[[str], Harness]) -> None:
    """No longer than a publisher would be held back."""
    harness = metered("publish_messages=1/1m")
    watcher = watch(harness)
    die(harness, 2)

    assert topics(watcher) == ["w/1"]
    assert harness.acme.plane.counters.drops()["quota"] == 1


def test_will_takes_from_the_rate_of_its_device(make_harness: Callable[..., Harness]) -> None:
    """Also when its session ends with its connection."""
    harness = make_harness()
    harness.limit("device_publish_messages=1/1s")
    watcher = watch(harness)
    die(harness, 2)
    assert topics(watcher) == ["w/1"]

    harness.pass_time(1.1)

    assert topics(watcher) == ["w/2"]


def test_wills_that_wait_are_bounded(metered: Callable[[str], Harness], monkeypatch: pytest.MonkeyPatch) -> None:
    """A storm of them does not fill the memory."""
    monkeypatch.setattr(wills, "WAITING", 1)
    harness = metered("publish_messages=1/1s")
    watcher = watch(harness)
    die(harness, 3)
    harness.pass_time(1.1)

    assert topics(watcher) == ["w/1", "w/2"]
    assert harness.acme.plane.counters.drops()["quota"] == 1


def test_will_of_a_kept_session_is_metered_when_it_fires(metered: Callable[[str], Harness]) -> None:
    harness = metered("publish_messages=1/1d")
    watcher = watch(harness)
    kept = {"clean": False, "props": [(names.SESSION_EXPIRY, 100)], "will_props": [(names.WILL_DELAY, 5)]}
    die(harness, 2, **kept)
    assert topics(watcher) == []

    harness.pass_time(5)

    assert topics(watcher) == ["w/1"]
    assert harness.used(Quota.SESSIONS) == 2
