"""One tenant floods the hub with what is expensive to answer; another tenant's witness pair plays on, at night under 1 s."""

from __future__ import annotations

import random
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import cast

import pytest

from tests.support.clients.packets import SUBACK, UNSUBACK, packet, string
from tests.support.clients.raw import RawClient
from tests.support.clients.witness import Witness
from tests.support.hubs.datadirs import fresh_hub
from tests.support.hubs.hub import Hub
from tests.support.waiting import PATIENCE_S

FLOODERS = 6
PACKETS = 4000  # of each flooder: more than the hub can do while the witness plays


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    """Tenant acme is the witness's; tenant noisy is on plan standard, tenant free on unlimited."""
    hub = fresh_hub(tmp_path_factory.mktemp("hub"))
    hub.tenant("noisy", "dev1", plan="standard")
    hub.tenant("free", "dev1")
    hub.start()
    yield hub
    hub.close()


def subscribe(number: int, chance: random.Random) -> bytes:
    return packet(0x82, struct.pack(">H", number) + string(b"f/%d/+" % chance.randrange(1000)) + b"\0")


def unsubscribe(number: int, chance: random.Random) -> bytes:
    return packet(0xA2, struct.pack(">H", number) + string(b"f/%d/+" % chance.randrange(1000)))


def refused_filter(number: int, _chance: random.Random) -> bytes:
    return packet(0x82, struct.pack(">H", number) + string(b"$SYS/x") + b"\0")


def retain(number: int, chance: random.Random) -> bytes:
    return packet(0x33, string(b"r/%d" % chance.randrange(1000)) + struct.pack(">H", number) + b"kept")


@pytest.mark.parametrize("make", [subscribe, unsubscribe, refused_filter, retain], ids=lambda make: make.__name__)
def test_flood_of_one_tenant_does_not_hold_up_another(hub: Hub, make: Callable[[int, random.Random], bytes]) -> None:
    """Whatever the quotas let through, tenants take turns."""
    stop = threading.Event()
    clients = [RawClient(hub.ports["tcp"], 4) for _ in range(FLOODERS)]
    for number, client in enumerate(clients):
        client.connect(f"flood-{number}", "noisy/dev1")
    threads = [threading.Thread(target=flood, args=(client, make, stop)) for client in clients]
    with Witness(hub) as witness:
        for thread in threads:
            thread.start()
        while witness.rounds < 60 and any(thread.is_alive() for thread in threads):
            threads[0].join(0.05)
        stop.set()
        for thread in threads:
            thread.join(PATIENCE_S)
    for client in clients:
        client.close()

    assert witness.rounds >= 20, "the flood was over before the witness had played"
    assert "Traceback" not in hub.log


def flood(client: RawClient, make: Callable[[int, random.Random], bytes], stop: threading.Event) -> None:
    """Send as fast as the hub reads; answers are read and thrown away. The hub may close us for it."""
    chance = random.Random(client.version)
    data = b"".join(make(number % 60_000 + 1, chance) for number in range(PACKETS))
    sock = cast("socket.socket", client.stream)
    sock.settimeout(0.01)
    with suppress(ConnectionError):
        while not stop.is_set():
            at = 0
            while at < len(data) and not stop.is_set():
                with suppress(TimeoutError):
                    at += sock.send(data[at : at + 65536])
                with suppress(TimeoutError, BlockingIOError):
                    sock.recv(1 << 20, socket.MSG_DONTWAIT)


@pytest.mark.parametrize("is_clean", [True, False], ids=["transient", "persistent"])
def test_great_subscribe_is_worked_off_in_slices(hub: Hub, is_clean: bool) -> None:
    """Twenty thousand Topic Filters in one packet, and all of them again in an UNSUBSCRIBE; each has its code."""
    filters = [string(b"f/%d/+" % number) for number in range(20_000)]
    with Witness(hub), RawClient(hub.ports["tcp"], 5) as client:
        client.connect(f"great-{is_clean}", "free/dev1", clean=is_clean)
        client.send(packet(0x82, b"\0\1\0" + b"".join(one + b"\1" for one in filters)))
        assert client.expect(SUBACK).codes == [1] * len(filters)
        client.send(packet(0xA2, b"\0\2\0" + b"".join(filters)))
        assert client.expect(UNSUBACK).codes == [0] * len(filters)
