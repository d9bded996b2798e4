"""How many events there are at most: in a while, and that wait; what is left out is counted. iothub_tenants.broker.event_topics."""

from __future__ import annotations

import pytest

from iothub.base.units import Rate
from iothub.engine.turn import PAUSES_PUBLISHERS
from iothub_tenants.broker import event_topics
from iothub_tenants.broker.event_topics import MOST_WAITING
from tests.support.in_process.event_hub import ACME, BETA, Hub


@pytest.fixture
def hub() -> Hub:
    return Hub()


def test_events_above_the_rate_are_left_out_and_their_number_published() -> None:
    hub = Hub(Rate(2, 10.0))
    hub.subscribe(b"$events/#")

    for _ in range(5):
        hub.connect()
    hub.run()
    hub.summarise()

    assert [topic for _, topic in hub.topics] == [
        "$events/client/connected/c1",
        "$events/client/connected/c1",
        "$events/event/left_out/rate",
    ]
    assert hub.bodies[-1]["count"] == 3
    assert hub.events.lost == {"rate": 3}


def test_the_rate_is_each_tenants_own_and_begins_again() -> None:
    hub = Hub(Rate(1, 10.0))
    hub.subscribe(b"$events/#")
    hub.subscribe(b"$events/#", tenant=hub.beta)

    hub.connect()
    hub.connect(tenant_id=BETA)
    hub.clock.advance(10.0)
    hub.connect()
    hub.run()

    assert [tenant for tenant, _ in hub.topics] == ["acme", "acme", "beta"]


def test_events_wait_while_publishers_of_their_tenant_are_held(hub: Hub) -> None:
    hub.subscribe(b"$events/#")
    hub.subscribe(b"$events/#", tenant=hub.beta)
    hub.plane.turn.held = {"acme"}

    for _ in range(MOST_WAITING + 2):
        hub.connect()
    hub.connect(tenant_id=BETA)
    hub.run()
    assert [tenant for tenant, _ in hub.topics] == ["beta"]
    assert hub.events.lost == {"held": 2}

    hub.plane.turn.held = set()
    while hub.due:
        hub.run()
    assert len(hub.topics) == MOST_WAITING + 1


def test_a_hub_that_ends_publishes_what_waits_and_counts_the_rest(hub: Hub) -> None:
    hub.subscribe(b"$events/#")
    hub.subscribe(b"$events/#", tenant=hub.beta)
    hub.plane.turn.held = {"beta"}
    for _ in range(250):
        hub.connect()
    hub.connect(tenant_id=BETA)

    hub.events.finish()
    hub.connect()
    hub.run()

    assert [tenant for tenant, _ in hub.topics] == ["acme"] * 250
    assert hub.events.lost == {"stopped": 2}


@pytest.mark.parametrize("is_full", [True, False])
def test_an_overloaded_hub_counts_events_and_does_not_publish_them(hub: Hub, is_full: bool) -> None:
    hub.subscribe(b"$events/#")
    hub.plane.turn.is_full, hub.plane.level = is_full, 0 if is_full else PAUSES_PUBLISHERS

    hub.connect()
    hub.run()

    assert hub.plane.published == []
    assert hub.events.lost == {"overload": 1}


def test_events_that_wait_are_bounded_over_all_tenants(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those whose broker is being made; what was published makes room."""
    monkeypatch.setattr(event_topics, "MOST_OF_ALL", 3)
    hub.subscribe(b"$events/#")
    hub.subscribe(b"$events/#", tenant=hub.beta)
    hub.plane.turn.held = {"acme"}
    for tenant_id in (ACME, ACME, BETA, BETA, ACME):
        hub.connect(tenant_id=tenant_id)
    assert hub.events.lost == {"held": 2}

    hub.run()
    for _ in range(2):
        hub.connect(tenant_id=BETA)

    assert [tenant for tenant, _ in hub.topics] == ["beta"]
    assert hub.events.lost == {"held": 3}


def test_changes_of_accounts_that_nobody_could_publish_are_counted(hub: Hub) -> None:
    hub.events.account_events_lost(7)

    assert hub.events.lost == {"held": 7}
