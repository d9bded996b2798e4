"""What the hub says of its readiness."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from iothub.hub.monitoring.health import Readiness
from iothub.hub.phase import Phase


class Hub:
    """A hub in good order, and what it says of itself."""

    def __init__(
        self, *, gateways: object | None = None, is_among_others: bool = False, is_starting: bool = False
    ) -> None:
        self.settings = SimpleNamespace(
            queues=SimpleNamespace(driver="sqlite", choices=()), retained=SimpleNamespace(driver="sqlite")
        )
        self.waiting = SimpleNamespace(reason="")
        self.watch = SimpleNamespace(no_writes="", is_overloaded=False)
        self.store_alarms = SimpleNamespace(process_away="")
        self.plane = SimpleNamespace(overload_level=lambda: 2)
        self.cluster = SimpleNamespace(held_back="") if is_among_others else None
        self.phase = Phase()
        if not is_starting:
            self.phase.become_ready()
        thread: Any = SimpleNamespace(is_failing=False)
        parts: dict[str, Any] = {
            "settings": self.settings,
            "phase": self.phase,
            "waiting": self.waiting,
            "alarms": None,
            "store_alarms": self.store_alarms,
            "watch": self.watch,
            "plane": self.plane,
            "writer": thread,
            "journal_thread": thread,
            "hbase": None if gateways is None else SimpleNamespace(gateways=gateways),
            "cluster": self.cluster,
        }
        self.reasons = Readiness(**parts).reasons


def test_worker_whose_store_process_is_away_is_not_ready_and_says_why() -> None:
    """Also while nobody publishes."""
    hub = Hub()

    hub.store_alarms.process_away = "the store process is away: it has not answered for 5 s"

    assert hub.reasons() == [
        "the store process is away: it has not answered for 5 s; until it is back nothing is stored, and publishers wait"
    ]


def test_hub_that_refuses_new_connections_is_not_ready() -> None:
    """For memory of either kind, and only as long as it does."""
    hub = Hub()
    assert hub.reasons() == []

    hub.watch.is_overloaded = True
    assert hub.reasons() == ["new connections are refused: resident memory is above overload.memory_limit"]

    hub.watch.is_overloaded = False
    hub.plane.overload_level = lambda: 3
    assert hub.reasons() == ["new connections are refused: overload.buffered_bytes is used up"]

    hub.plane.overload_level = lambda: 2
    assert hub.reasons() == []


class Gateways:
    """Two, of which some do not answer."""

    def __init__(self) -> None:
        self.troubles: dict[str, str] = {}

    def __len__(self) -> int:
        return 2


@pytest.mark.parametrize("need", ["queues", "choice", "retained"])
def test_hub_without_any_gateway_is_not_ready(need: str) -> None:
    """Before a write has failed; one that answers is enough."""
    gateways = Gateways()
    hub = Hub(gateways=gateways)
    if need == "choice":
        hub.settings.queues.choices = (SimpleNamespace(driver="hbase"),)
    else:
        getattr(hub.settings, need).driver = "hbase"
    gateways.troubles["one:9090"] = "is gone"
    assert hub.reasons() == []

    gateways.troubles["two:9090"] = "has not answered for 3 s"

    assert hub.reasons() == [
        "no gateway of HBase answers: HBase's gateway one:9090 is gone; HBase's gateway two:9090 has not answered for 3 s; "
        "check hbase.thrift; see docs/guide/hbase.md#the-hub-does-not-reach-hbase"
    ]


def test_hub_that_only_writes_behind_to_hbase_goes_on_without_it() -> None:
    """States are not waited for."""
    gateways = Gateways()
    hub = Hub(gateways=gateways)
    gateways.troubles.update({"one:9090": "is gone", "two:9090": "is gone"})

    assert hub.reasons() == []


def test_start_names_the_gateways_that_do_not_answer() -> None:
    """At once: the call that waits for them may wait for a while; none is named twice."""
    gateways = Gateways()
    hub = Hub(gateways=gateways)
    hub.waiting.reason = "sessions are being loaded from HBase"
    assert hub.reasons() == ["the hub is starting: sessions are being loaded from HBase"]

    gateways.troubles["one:9090"] = "has not answered for 3 s"
    assert hub.reasons() == [
        "the hub is starting: sessions are being loaded from HBase; HBase's gateway one:9090 has not answered for 3 s"
    ]

    hub.waiting.reason = "waiting for HBase: HBase's gateway one:9090 has not answered for 3 s"
    assert hub.reasons() == [f"the hub is starting: {hub.waiting.reason}"]


def test_hub_that_starts_and_waits_for_nothing_loads_sessions() -> None:
    hub = Hub(is_among_others=True, is_starting=True)
    assert hub.reasons() == ["the hub is starting: sessions are being loaded, or a listener is not open yet"]


def test_hub_that_takes_no_messages_is_not_ready() -> None:
    """Whatever keeps it from knowing what other hubs' sessions do."""
    hub = Hub(is_among_others=True)
    assert hub.cluster is not None
    assert hub.reasons() == []

    hub.cluster.held_back = "an event of format version 99, and publishers wait"

    assert hub.reasons() == [
        "messages and persistent sessions are not taken: an event of format version 99, and publishers wait"
    ]
