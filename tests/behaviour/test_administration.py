"""What an operator says to a running hub is applied without a restart, and without a reconnect.

How soon is the interval at which accounts are polled (`sql.poll_interval`).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.clients.clients import unique
from tests.support.clients.mqtt_clients import Client, Clients
from tests.support.clients.packets import DISCONNECT
from tests.support.waiting import until

Say = Callable[..., None]
DENIED = {4: 5, 5: 0x87}
SUBACK_DENIED = {4: 0x80, 5: 0x87}


@pytest.fixture(scope="module")
def tenants() -> list[str]:
    """Names of tenants that nobody has touched yet."""
    return [f"admin-{number}" for number in range(30)]


@pytest.fixture
def tenant(say: Say, tenants: list[str], tmp_path: Path) -> str:
    """A fresh tenant with devices dev1 and dev2."""
    name = tenants.pop()
    devices = tmp_path / "devices.csv"
    devices.write_text("name,password\ndev1,secret\ndev2,secret\n")
    say("tenant", "create", name, "--plan", "unlimited")
    say("device", "import", name, str(devices))
    return name


def closed_by_the_hub(*connected: Client, codes: tuple[int, ...] = ()) -> None:
    """Every connection is gone; in 5.0 it was told why."""
    for client in connected:
        said = client.expect_closed()
        if client.version == 5:
            assert said[-1].kind == DISCONNECT
            assert said[-1].code in codes, f"0x{said[-1].code:02X}"


def test_a_new_tenant_works_at_once(tcp: Clients, tenant: str) -> None:
    """Tenant and devices were made under the running hub."""
    one, two, topic = tcp(5, tenant=tenant), tcp(4, tenant=tenant, device="dev2"), unique("t")
    one.subscribe((topic, 1))

    two.publish(topic, b"hello", 1)

    assert one.payloads() == [b"hello"]


def test_suspending_a_tenant_closes_and_refuses(tcp: Clients, say: Say, tenant: str) -> None:
    """Everybody of the tenant, nobody else; resuming finds sessions and messages in place."""
    topic, bystander = unique("t"), tcp(5)
    three, five = tcp(4, tenant=tenant, keep=True), tcp(5, tenant=tenant, keep=True, device="dev2")
    for client in (three, five):
        client.subscribe((topic, 1))
    three.publish(topic, b"before", 1)

    say("tenant", "suspend", tenant)

    closed_by_the_hub(three, five, codes=(0x87, 0x98))
    assert tcp.ask(4, three.client_id, tenant=tenant).connack.code == 5
    assert tcp.ask(5, five.client_id, tenant=tenant, device="dev2").connack.code == 0x8A
    bystander.nothing()
    say("tenant", "resume", tenant)
    until(lambda: tcp.ask(4, tenant=tenant).connack.code == 0, "the tenant may connect again")
    back = tcp(4, three.client_id, tenant=tenant, keep=True)
    assert back.connack.session_present
    assert back.payloads() == [b"before"]


@pytest.mark.parametrize("verb", ["disable", "delete", "set-password"])
def test_revoking_a_device_closes_its_connections(
    tcp: Clients, say: Say, tenant: str, verb: str, tmp_path: Path
) -> None:
    """And lets the old secret in no more; the neighbour stays."""
    three, five = tcp(4, tenant=tenant), tcp(5, tenant=tenant)
    neighbour = tcp(5, tenant=tenant, device="dev2")

    (tmp_path / "secret").write_text("another")
    options = {"set-password": ("--secret-file", str(tmp_path / "secret")), "delete": ("--yes",)}.get(verb, ())
    say("device", verb, tenant, "dev1", *options)

    closed_by_the_hub(three, five, codes=(0x87, 0x98))
    for version in (4, 5):
        assert tcp.ask(version, tenant=tenant).connack.code == DENIED[version]
    neighbour.nothing()
    if verb == "set-password":
        assert tcp(5, tenant=tenant, password="another").connack.code == 0


def test_a_denied_filter_stops_deliveries(tcp: Clients, say: Say, tenant: str) -> None:
    """A rule inside an allowed filter acts on live messages, on the queue and on retained replay; new SUBSCRIBEs are refused. (P4)."""
    publisher = tcp(5, tenant=tenant, device="dev2")
    live, waiting = tcp(5, tenant=tenant), tcp(5, tenant=tenant, keep=True)
    for client in (live, waiting):
        client.subscribe(("a/#", 1))
    waiting.disconnect()
    publisher.publish("a/secret", b"queued", 1)
    publisher.publish("a/secret/kept", b"kept", 1, retain=True)
    publisher.publish("a/open", b"open", 1)
    assert live.payloads(3) == [b"queued", b"kept", b"open"]

    say("acl", "deny", tenant, "dev1", "subscribe", "a/secret/#")

    def is_applied() -> bool:
        publisher.publish("a/secret", b"late", 1)
        publisher.publish("a/open", b"fence", 1)
        return live.payloads() == [b"fence"] or live.payloads() == []

    until(is_applied, "denied messages are delivered no more")
    publisher.publish("a/secret", b"never", 1)
    publisher.publish("a/open", b"open", 1)
    assert live.payloads() == [b"open"]
    back = tcp(5, waiting.client_id, tenant=tenant, keep=True)
    payloads = set()
    while b"open" not in payloads:
        payloads |= set(back.payloads())
    back.ping()
    assert payloads <= {b"open", b"fence"}
    assert back.subscribe(("a/secret/x", 0), ("a/#", 0x10), ("b/#", 0)).codes == [0x87, 0, 0]
    assert tcp(4, tenant=tenant).subscribe(("a/secret", 1)).codes == [0x80]
    late = tcp(4, tenant=tenant)
    late.subscribe(("a/#", 1))
    publisher.publish("a/open", b"no retained one", 1)
    assert late.payloads() == [b"no retained one"]


def test_a_denied_topic_cannot_be_published(tcp: Clients, say: Say, tenant: str, version: int) -> None:
    """5.0 is told 0x87; 3.1.1 gets its acknowledgement and the message goes nowhere; the connection stays. [MQTT3-3.3.5-2]."""
    publisher, watcher = tcp(version, tenant=tenant), tcp(4, tenant=tenant, device="dev2")
    watcher.subscribe(("#", 1))

    say("acl", "deny", tenant, "dev1", "publish", "locked/#")

    def is_applied() -> bool:
        answer = publisher.publish("locked/a", b"maybe", 1)
        publisher.publish("open", b"fence", 1)
        assert answer is not None
        got = watcher.payloads()
        if got == [b"maybe"]:
            watcher.take()
        return got == [b"fence"]

    until(is_applied, "a denied topic is still published")
    for qos in range(3):
        answer = publisher.publish("locked/a", b"no", qos, retain=True)
        assert answer is None or answer.code == (0x87 if version == 5 else 0)
    publisher.publish("open", b"yes", 1)
    assert watcher.payloads() == [b"yes"]
    watcher.subscribe(("locked/#", 1))
    watcher.nothing()


def test_a_will_is_checked_at_connect_and_again_when_it_fires(tcp: Clients, say: Say, tenant: str) -> None:
    """Denied at CONNECT it is refused; denied afterwards it is not published."""
    watcher = tcp(4, tenant=tenant, device="dev2")
    watcher.subscribe(("wills/#", 0))
    client = tcp(5, tenant=tenant, will=("wills/late", b"x", 0, False))
    say("acl", "deny", tenant, "dev1", "publish", "wills/#")

    def refuses() -> bool:
        asked = tcp.ask(5, tenant=tenant, will=("wills/now", b"x", 0, False))
        if asked.connack.code == 0:
            asked.disconnect()
        return asked.connack.code == 0x87

    until(refuses, "a denied Will is still accepted")
    assert tcp.ask(4, tenant=tenant, will=("wills/now", b"x", 0, False)).connack.code == 5
    client.drop()
    tcp(5, tenant=tenant).ping()
    watcher.nothing()


def test_a_closed_tenant_allows_only_what_is_granted(
    tcp: Clients, say: Say, tenants: list[str], tmp_path: Path
) -> None:
    """Default deny; SUBSCRIBE needs an allowed filter that covers it; templates know the device."""
    name = tenants.pop()
    say("tenant", "create", name, "--plan", "unlimited", "--closed")
    (tmp_path / "secret").write_text("secret")
    say("device", "create", name, "dev1", "--secret-file", str(tmp_path / "secret"))
    say("acl", "allow", name, "*", "subscribe", "to/{device}/#")
    say("acl", "allow", name, "dev1", "publish", "from/+/x")
    client = tcp(5, tenant=name)

    codes = client.subscribe(
        ("to/dev1/a", 0),
        ("to/dev1/#", 1),
        ("to/+/a", 0),
        ("to/dev2/a", 0),
        ("#", 0),
        ("$share/g/to/dev1/+", 0),
        ("$share/g/#", 0),
    ).codes
    answers = [client.publish(topic, b"", 1) for topic in ("from/me/x", "from/me/y", "to/dev1/a")]

    assert codes == [0, 1, 0x87, 0x87, 0x87, 0, 0x87]
    assert [answer.code in (0, 0x10) for answer in answers if answer] == [True, False, False]
    assert [answer.code for answer in answers[1:] if answer] == [0x87, 0x87]
