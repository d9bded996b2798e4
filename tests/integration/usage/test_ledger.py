"""The hub's ledger against its clients': a load of known size on three tenants, a clean stop, and a kill -9.

Whoever reads the log adds up `usage.counted`; here that is a plain loop over the file, so that nothing but the hub is on trial.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from iothub.records.analytics import USAGE_FACTS
from iothub.records.events import Event, EventType, Topic, decode_event
from iothub.records.layout import EVENT_TABLES
from tests.support.clients.clients import Listener
from tests.support.clients.mqtt_clients import Client, Clients
from tests.support.hubs.hub import IOTHUB, Hub
from tests.support.ports import free_port
from tests.support.waiting import until

TENANTS = ("acme", "globex", "umbrella")
LARGE = b"x" * 9_000  # three blocks


@pytest.fixture(scope="module")
def initialised(tmp_path_factory: pytest.TempPathFactory) -> Hub:
    """A data directory with the tenants, never started."""
    made = Hub(tmp_path_factory.mktemp("initialised") / "hub")
    made.init()
    for name in TENANTS:
        made.tenant(name, "dev1")
    return made


@pytest.fixture(scope="module")
def ids(initialised: Hub) -> dict[str, int]:
    return {str(row["name"]): int(str(row["id"])) for row in initialised.rows("tenant", "list")}


@pytest.fixture
def hub(tmp_path: Path, initialised: Hub) -> Iterator[Hub]:
    made = Hub(tmp_path / "hub", ports={"tcp": free_port()}, settings={"events.usage_interval": "1s"})
    shutil.copytree(initialised.data_dir, made.data_dir)
    yield made
    made.close()


@dataclass
class Ledger:
    """What the clients of one tenant have counted themselves."""

    messages_in: int = 0
    messages_out: int = 0
    blocks_in: int = 0
    blocks_out: int = 0
    fanout: int = 0
    connected: list[Client] = field(default_factory=list)

    def figures(self) -> dict[str, int]:
        return {
            name: getattr(self, name) for name in ("messages_in", "messages_out", "blocks_in", "blocks_out", "fanout")
        }


def events_of(hub: Hub) -> list[Event]:
    statement = f"SELECT value FROM {EVENT_TABLES[Topic.ANALYTICS]} ORDER BY offset"
    with closing(sqlite3.connect(f"file:{hub.data_dir / 'events.db'}?mode=ro", uri=True)) as connection:
        return [decode_event(value) for (value,) in connection.execute(statement)]


def ledger_of(hub: Hub) -> dict[int, Counter[str]]:
    """Add up the usage of every tenant; an event that is there twice counts once."""
    sums: dict[int, Counter[str]] = {}
    seen: set[tuple[object, object]] = set()
    for event in events_of(hub):
        number = event.facts["incarnation"], event.facts["sequence"]
        if event.type is EventType.USAGE_COUNTED and number not in seen:
            seen.add(number)
            figures = {name: int(str(event.facts[name])) for name in USAGE_FACTS}
            sums.setdefault(event.tenant_id, Counter()).update(figures)
    return sums


def load(hub: Hub, clients: Clients, tenant: str, rounds: int) -> Ledger:
    """One publisher, two who are there, one who is away with a queue; every PUBLISH is acknowledged before the next."""
    ledger = Ledger()
    away = clients(tenant=tenant, client_id="away", keep=True)
    away.subscribe(("load", 1))
    away.drop()
    listeners = [clients(tenant=tenant) for _ in range(2)]
    for listener in listeners:
        listener.subscribe(("load", 1))
    publisher = clients(tenant=tenant)
    for number in range(rounds):
        payload = LARGE if number % 3 == 0 else b"small"
        blocks = 3 if number % 3 == 0 else 1
        publisher.publish("load", payload, qos=1 + number % 2)
        ledger.messages_in += 1
        ledger.blocks_in += blocks
        ledger.fanout += 3
        for listener in listeners:
            listener.take()
            ledger.messages_out += 1
            ledger.blocks_out += blocks
    ledger.connected = [publisher, *listeners]
    return ledger


def ledgers(hub: Hub, ids: dict[str, int], loads: dict[str, Ledger]) -> dict[str, dict[str, int]]:
    """What the log says of the tenants, in the clients' words."""
    found = ledger_of(hub)
    return {name: {key: found.get(ids[name], Counter())[key] for key in loads[name].figures()} for name in loads}


def figures_of(loads: dict[str, Ledger]) -> dict[str, dict[str, int]]:
    return {name: ledger.figures() for name, ledger in loads.items()}


def as_the_job_has_it(hub: Hub) -> dict[str, dict[str, int]]:
    """Run `usage`, and ask for its sums as an operator does."""
    command = [str(IOTHUB), "--data-dir", str(hub.data_dir), "job", "run", "usage"]
    environment = {**os.environ, "IOTHUB_SPARK__MASTER": "local[1]"}
    subprocess.run(command, check=True, timeout=500, env=environment, capture_output=True)
    words = {"blocks_in": "equivalents_in", "blocks_out": "equivalents_out"}
    sums = {name: hub.rows("usage", "show", name, "--by", "total")[0] for name in TENANTS}
    return {name: {key: int(str(row[words.get(key, key)])) for key in Ledger().figures()} for name, row in sums.items()}


def all_loads(hub: Hub, clients: Clients, *rounds: int) -> dict[str, Ledger]:
    return {name: load(hub, clients, name, count) for name, count in zip(TENANTS, rounds, strict=True)}


@pytest.fixture
def clients() -> Iterator[Callable[[Hub], Clients]]:
    all_clients: list[Clients] = []

    def host(hub: Hub) -> Clients:
        all_clients.append(Clients(Listener(hub, "tcp")))
        return all_clients[-1]

    yield host
    for each in all_clients:
        each.leave()


def test_ledger_agrees_with_the_clients_after_a_clean_stop(
    hub: Hub, ids: dict[str, int], clients: Callable[[Hub], Clients]
) -> None:
    """To the message and to the block, tenant by tenant; also what was counted in the second that was not over."""
    hub.settings["events.usage_interval"] = "1h"
    hub.start()
    loads = all_loads(hub, clients(hub), 40, 25, 7)

    assert hub.stop() == 0

    assert ledgers(hub, ids, loads) == figures_of(loads)
    assert as_the_job_has_it(hub) == {name: ledger.figures() for name, ledger in loads.items()}
    found = ledger_of(hub)
    assert all(found[number]["connection_ms"] > 0 for number in ids.values())
    assert all(found[number]["bytes_in"] > 0 for number in ids.values())


def test_ledger_is_at_most_one_interval_short_after_a_kill(
    hub: Hub, ids: dict[str, int], clients: Callable[[Hub], Clients]
) -> None:
    """What was written before stays, the next life goes on from 0, and nothing is counted twice."""
    hub.start()
    first = all_loads(hub, clients(hub), 20, 10, 5)
    until(lambda: ledgers(hub, ids, first) == figures_of(first), "the usage of the load is written")
    load(hub, clients(hub), TENANTS[0], 4)  # killed while this is in memory, or just after it was written
    hub.kill()
    killed = ledgers(hub, ids, first)

    hub.start()
    last = all_loads(hub, clients(hub), 3, 2, 1)
    assert hub.stop() == 0

    assert killed[TENANTS[1]] == first[TENANTS[1]].figures()
    assert first[TENANTS[0]].messages_in <= killed[TENANTS[0]]["messages_in"] <= first[TENANTS[0]].messages_in + 4
    after = ledgers(hub, ids, first)
    for name in TENANTS:
        assert after[name]["messages_in"] == killed[name]["messages_in"] + last[name].messages_in
        assert after[name]["fanout"] == killed[name]["fanout"] + last[name].fanout


def test_samples_drops_and_refusals_are_in_the_log(
    hub: Hub, ids: dict[str, int], clients: Callable[[Hub], Clients]
) -> None:
    """What is stored, what nobody wanted, who could not come in; each of its own tenant."""
    hub.start()
    opened = clients(hub)
    load(hub, opened, "acme", 6)
    opened(tenant="globex").publish("nobody/listens", b"x", qos=1)
    opened.ask(tenant="globex", password="wrong")

    hub.stop()

    logged = events_of(hub)
    sample = [event for event in logged if event.type is EventType.TENANT_SAMPLED and event.tenant_id == ids["acme"]][
        -1
    ]
    assert (sample.facts["queued_messages"], sample.facts["sessions"]) == (6, 1)
    events = {
        (event.type.word, event.tenant_id, event.facts.get("reason") or event.facts.get("cause"), event.facts["device"])
        for event in logged
        if event.type in (EventType.MESSAGE_DROPPED, EventType.AUTH_FAILED)
    }
    assert ("message.dropped", ids["globex"], "no_subscribers", "") in events
    assert ("auth.failed", ids["globex"], "wrong_secret", "dev1") in events
