"""A hub of its own: a day survives kill -9, changed limits are applied, trials report, people are told who says what."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from iothub_tenants.accounts import plans, quotas
from tests.support.clients.packets import DISCONNECT, SUBACK
from tests.support.hubs.hub import Hub
from tests.support.hubs.quota_harness import Harness, Tenancy, closing_packets, open_harness, publish_until_refused
from tests.support.ports import free_port
from tests.support.waiting import until


@pytest.fixture(scope="module")
def hub_harness(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harness]:
    """A hub that may be killed."""
    hub = Hub(tmp_path_factory.mktemp("mortal") / "hub", ports={"tcp": free_port(), "http": free_port()})
    hub.init()
    hub.start()
    with open_harness(hub) as made:
        yield made
    hub.close()


@pytest.fixture
def mortal(hub_harness: Harness) -> Iterator[Harness]:
    """Its tenants' clients go when the test ends."""
    yield hub_harness
    hub_harness.clear()


def test_day_survives_a_kill(mortal: Harness) -> None:
    """As many as the day allows, before and after together; sessions, subscriptions and queues are counted again from what is stored."""
    windows = {
        (version, limit): mortal.tenant(limit)
        for version in (4, 5)
        for limit in ("publish_messages=6/1d", "device_publish_messages=6/30d", "publish_bytes=600/1d", "connects=6/1d")
    }
    counted = mortal.tenant("sessions=2 subscriptions=3 queued_messages=4 retained_messages=2")
    limited = mortal.tenant()
    for (version, limit), here in windows.items():
        if limit.startswith("connects"):
            assert [spend_connect(here, version) for _ in range(4)] == [0] * 4
        else:
            assert spend(here, version, 4)[:4] == [0x10 if version == 5 else 0] * 4
    for name in ("one", "two"):
        kept = counted.keep(5, name)
        kept.subscribe(("t", 1))
        kept.disconnect()
    publisher = counted.connect(5, device="dev2")
    assert publish_until_refused(publisher, "t", 2, 1) == [0, 0]
    publisher.publish("r", b"x", 1, retain=True)
    kept = limited.keep(5, "kept")
    kept.subscribe(("t", 1))

    mortal.hub.kill()
    mortal.hub.run("quota", "set", limited.name, "session_queued_messages=2")
    mortal.hub.start()

    for (version, limit), here in windows.items():
        if limit.startswith("connects"):
            assert [spend_connect(here, version) for _ in range(3)] == [0, 0, 3 if version == 4 else 0x9F]
            continue
        codes = spend(here, version, 3)
        assert codes == ([0, 0, -1] if version == 4 else [0x10, 0x10, 0x97]), (version, limit)
    figures = {
        name: counted.used(name) for name in ("sessions", "subscriptions", "queued_messages", "retained_messages")
    }
    assert figures == {"sessions": 2, "subscriptions": 2, "queued_messages": 4, "retained_messages": 1}
    _, connack = counted.ask(5, "three", clean=False, props=[(0x11, 100)])
    assert connack is not None
    assert connack.code == 0x97
    assert publish_until_refused(counted.connect(5), "t", 1, 1) == [0x97]
    assert publish_until_refused(limited.connect(5, device="dev2"), "t", 3, 1) == [0, 0, 0x97]


def spend(here: Tenancy, version: int, count: int) -> list[int]:
    client = here.connect(version)
    return publish_until_refused(client, "t", count, 1, b"x" * (100 - len(client.publish_bytes("t", b"", 1, 1))))


def spend_connect(here: Tenancy, version: int) -> int:
    _, connack = here.ask(version)
    assert connack is not None
    return connack.code


def test_command_is_applied_without_a_reconnect(mortal: Harness) -> None:
    """`iothub quota set` and `unset`, for the tenant and for one device."""
    here = mortal.tenant()
    client = here.connect(5)
    client.subscribe(("t", 0))

    here.command("set", "session_subscriptions=1", "publish_messages=1/1h", "topic_levels=3")
    assert client.subscribe(("u", 0)).codes == [0x97]
    assert publish_until_refused(client, "t", 2, 1) == [0, 0x97]
    here.command("set", "session_subscriptions=2", "--device", "dev1")
    assert client.subscribe(("u", 0), ("v", 0)).codes == [0, 0x97]
    here.command("unset", "publish_messages", "session_subscriptions")
    here.command("unset", "session_subscriptions", "--device", "dev1")
    assert publish_until_refused(client, "t", 2, 1) == [0, 0]
    assert client.subscribe(("w", 0)).codes == [0]
    client.send(client.publish_bytes("a/b/c/d"))
    assert closing_packets(client) == [(DISCONNECT, 0x90)]


def test_hub_notices_by_itself_that_limits_were_changed(mortal: Harness) -> None:
    """By the command, and in the accounts without it: nobody asks the hub to look."""
    here = mortal.tenant("subscriptions=1")
    client = here.connect(5)
    assert client.subscribe(("a", 0), ("b", 0)).codes == [0, 0x97]

    mortal.hub.run("quota", "set", here.name, "subscriptions=2")
    until(lambda: client.subscribe(("b", 0)).codes == [0], "the hub has noticed the command")
    assert client.subscribe(("c", 0)).codes == [0x97]
    quotas.set_limits(mortal.store, here.name, ("subscriptions=3",), None)
    until(lambda: client.subscribe(("c", 0)).codes == [0], "the hub has looked at its accounts")


def test_changed_plan_is_applied(mortal: Harness) -> None:
    """By every tenant on it and on a plan that inherits from it."""
    here = mortal.tenant()
    plans.create(mortal.store, "base", "subscriptions=1", parent="unlimited")
    plans.create(mortal.store, "tiny", "sessions=3", parent="base")
    mortal.hub.run("tenant", "update", here.name, "--plan", "tiny")
    client = here.connect(5)
    assert client.subscribe(("a", 0), ("b", 0)).codes == [0, 0x97]

    plans.set_plan(mortal.store, "base", "subscriptions=2")
    here.apply()

    assert client.subscribe(("b", 0), ("c", 0)).codes == [0, 0x97]


def test_dry_run_reports_and_refuses_nothing(mortal: Harness) -> None:
    """Counts, refusing rates, rates that hold back, of the tenant and of a device, calendar windows: each as often as it would have said no."""
    here = mortal.tenant(
        "dry-run:connections=1 dry-run:subscribes=2/1m dry-run:publish_messages=2/1m dry-run:publish_bytes=1000/1d",
        "dry-run:deliver_messages=2/1m dry-run:session_subscriptions=1 publish_messages=100/1m",
        device=("dry-run:device_publish_messages=3/1m",),
    )
    client, other = here.connect(5), here.connect(5, device="dev2")
    assert client.subscribe(("t", 0), ("u", 0), ("v", 0)).codes == [0, 0, 0]

    assert publish_until_refused(client, "t", 5, 1, b"x" * 300) == [0] * 5
    other.ping()

    tried = (
        "connections",
        "subscribes",
        "session_subscriptions",
        "publish_messages",
        "publish_bytes",
        "deliver_messages",
    )
    assert {name: here.tried(name) for name in tried} == {
        "connections": 1,
        "subscribes": 1,
        "session_subscriptions": 2,
        "publish_messages": 3,
        "publish_bytes": 2,
        "deliver_messages": 3,
    }
    assert here.tried("device_publish_messages") == 2
    assert [here.refused(name) for name in tried] == [0] * len(tried)
    assert client.subscribe(("t", 0)).kind == SUBACK


def test_explain_says_what_limits_whom_and_why(mortal: Harness) -> None:
    """Layer by layer: a trial hides nothing, a device's word comes first."""
    here = mortal.tenant("connections=5 dry-run:connects=3/1s", device=("session_subscriptions=7",))

    def explain(*words: str) -> list[dict[str, Any]]:
        return list(json.loads(mortal.hub.run("-o", "json", "quota", "explain", here.name, *words).stdout))

    rows = {row["name"]: row for row in explain()}
    connections, connects = rows["connections"], rows["connects"]
    assert connections["limits"] == {"connections": 5}
    assert (connections["origin"], connections["counted_per"]) == ("tenant", "tenant")
    assert all(row["meaning"] for row in rows.values())
    assert (connects["limits"], connects["origin"]) == ({"connects": "unlimited", "dry-run:connects": ["3/1s"]}, "none")
    (own,) = explain("session_subscriptions", "--device", "dev1")
    assert (own["limits"], own["origin"]) == ({"session_subscriptions": 7}, "device")
