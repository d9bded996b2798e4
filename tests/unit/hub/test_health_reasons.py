"""What the hub says of its readiness."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from iothub.hub.health import NodeHealth


def node() -> Any:
    """A hub in good order."""
    return SimpleNamespace(
        settings=SimpleNamespace(
            metrics=SimpleNamespace(tenant_series_max=1),
            queues=SimpleNamespace(driver="sqlite", choices=()),
            retained=SimpleNamespace(driver="sqlite"),
        ),
        waiting=SimpleNamespace(reason=""),
        hbase=None,
        telemetry=SimpleNamespace(is_ready=True),
        is_stopping=False,
        writer=SimpleNamespace(is_failing=False),
        journal_thread=SimpleNamespace(is_failing=False),
        watch=SimpleNamespace(no_writes="", is_overloaded=False),
        plane=SimpleNamespace(overload_level=lambda: 2),
        shared_stores=None,
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


class Gateways:
    """Two, of which some do not answer."""

    def __init__(self) -> None:
        self.troubles: dict[str, str] = {}

    def __len__(self) -> int:
        return 2


@pytest.mark.parametrize("need", ["queues", "choice", "retained"])
def test_hub_without_any_gateway_is_not_ready(need: str) -> None:
    """Before a write has failed; one that answers is enough."""
    hub = node()
    if need == "choice":
        hub.settings.queues.choices = (SimpleNamespace(driver="hbase"),)
    else:
        getattr(hub.settings, need).driver = "hbase"
    health, gateways = NodeHealth(hub), Gateways()
    hub.hbase = SimpleNamespace(gateways=gateways)
    gateways.troubles["one:9090"] = "is gone"
    assert health.reasons() == []

    gateways.troubles["two:9090"] = "has not answered for 3 s"

    assert health.reasons() == [
        "no gateway of HBase answers: HBase's gateway one:9090 is gone; HBase's gateway two:9090 has not answered for 3 s; "
        "check hbase.thrift; see docs/guide/hbase.md#the-hub-does-not-reach-hbase"
    ]


def test_hub_that_only_writes_behind_to_hbase_goes_on_without_it() -> None:
    """States are not waited for."""
    hub = node()
    gateways = Gateways()
    hub.hbase = SimpleNamespace(gateways=gateways)
    gateways.troubles.update({"one:9090": "is gone", "two:9090": "is gone"})

    assert NodeHealth(hub).reasons() == []


def test_start_names_the_gateways_that_do_not_answer() -> None:
    """At once: the call that waits for them may wait for a while; none is named twice."""
    hub = node()
    health = NodeHealth(hub)
    hub.waiting.reason = "sessions are being loaded from HBase"
    assert health.reasons() == ["the hub is starting: sessions are being loaded from HBase"]

    hub.hbase = SimpleNamespace(gateways=SimpleNamespace(troubles={"one:9090": "has not answered for 3 s"}))
    assert health.reasons() == [
        "the hub is starting: sessions are being loaded from HBase; HBase's gateway one:9090 has not answered for 3 s"
    ]

    hub.waiting.reason = "waiting for HBase: HBase's gateway one:9090 has not answered for 3 s"
    assert health.reasons() == [f"the hub is starting: {hub.waiting.reason}"]


def test_hub_that_takes_no_messages_is_not_ready() -> None:
    """Whatever keeps it from knowing what other hubs' sessions do."""
    hub = node()
    hub.shared_stores = SimpleNamespace(held_back="")
    health = NodeHealth(hub)
    assert health.reasons() == []

    hub.shared_stores.held_back = "an event of format version 99, and publishers wait"

    assert health.reasons() == [
        "messages and persistent sessions are not taken: an event of format version 99, and publishers wait"
    ]
