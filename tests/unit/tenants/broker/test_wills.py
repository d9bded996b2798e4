"""A Will that fires is a PUBLISH: it takes from the same meters, waits for them, or is dropped by name."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from iothub_services.quota.names import Quota
from iothub_tenants.broker import wills
from tests.support.clients import property_names as names
from tests.support.clients.mqtt_clients import Client
from tests.support.in_process.control_harness import Harness


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
    monkeypatch.setattr(wills, "WAITING_BYTES", 1)
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


HOLDS: tuple[Callable[[Harness, bool], None], ...] = (
    lambda harness, is_held: harness.plane.hold_publishers_of(harness.acme.plane, is_held),
    lambda harness, is_held: harness.plane.hold_from(harness.clock.monotonic() if is_held else math.inf),
)


@pytest.mark.parametrize("hold", HOLDS, ids=["of the tenant", "of the hub"])
def test_wills_wait_while_publishers_are_held(
    make_harness: Callable[..., Harness], hold: Callable[[Harness, bool], None]
) -> None:
    """A subscription of another hub may be missing here: a Will that was published now would miss a client that has its SUBACK."""
    harness = make_harness()
    watcher = watch(harness)
    hold(harness, True)
    die(harness, 2)
    harness.pass_time(60)  # longer than a rate may make a Will wait
    assert topics(watcher) == []

    hold(harness, False)
    harness.pass_time(1)

    assert topics(watcher) == ["w/1", "w/2"]
    assert harness.acme.plane.counters.dropped == {}


def test_time_of_a_hold_does_not_count_as_waiting_for_a_rate(metered: Callable[[str], Harness]) -> None:
    """Else the end of a long hold would drop what the rate lets through a second later."""
    harness = metered("publish_messages=1/1s")
    watcher = watch(harness)
    die(harness, 2)
    harness.plane.hold_publishers_of(harness.acme.plane, True)
    harness.pass_time(60)
    harness.plane.hold_publishers_of(harness.acme.plane, False)
    for _ in range(4):
        harness.pass_time(0.6)

    assert topics(watcher) == ["w/1", "w/2"]
