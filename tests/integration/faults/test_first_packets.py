"""Unauthenticated clients: garbage, other protocols, huge declared lengths, half-open sockets, slow connects.

A witness pair plays ping-pong throughout.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.clients.crowd import Crowd
from tests.support.clients.raw import RawClient
from tests.support.clients.witness import Witness, open_files, rss_bytes
from tests.support.hubs.datadirs import fresh_hub
from tests.support.hubs.hub import Hub
from tests.support.night import by_day
from tests.support.waiting import PATIENCE_S, until

TIMEOUT_S = 2.0  # the connect timeout of a hub ...
FAR_S = 300.0  # ... and of one where nothing that is closed is closed for it
AT_ONCE_S = by_day(FAR_S / 2, 1.0)
SOON_S = by_day(PATIENCE_S, 1.5)
GARBAGE = 500
LIARS = 1000

HTTP = b"GET / HTTP/1.1\r\nHost: hub\r\nUser-Agent: curl\r\n\r\n"
SSH = b"SSH-2.0-OpenSSH_9.2\r\n"
TLS = bytes.fromhex("16030100c8010000c403035a") + b"\x5a" * 196


def started(place: Path, connect_timeout_s: float) -> Hub:
    hub = fresh_hub(place, mqtt__connect_timeout=f"{connect_timeout_s:g}s")
    hub.start()
    return hub


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    made = started(tmp_path_factory.mktemp("hub"), TIMEOUT_S)
    yield made
    made.close()


@pytest.fixture(scope="module")
def patient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    made = started(tmp_path_factory.mktemp("patient"), FAR_S)
    yield made
    made.close()


def first_packets() -> list[bytes]:
    """14 packet types that are not CONNECT in 4 sizes, three other protocols, and random bytes."""
    chance = random.Random(1)
    others = [kind << 4 | (2 if kind in (6, 8, 10) else 0) for kind in (*range(2, 16), 0)]
    sizes = (0, 2, 100, 3000)
    packets = [bytes([header]) + _length(size) + chance.randbytes(size) for header in others for size in sizes]
    noise = bytes([0xFF]) + chance.randbytes(65535)
    return [*packets, HTTP, SSH, TLS, noise, b"\x10" + b"\xff" * 5, b"\x10\x0c\x00\x04MQTX\x04\x02\x00\x3c\x00\x00"]


def _length(size: int) -> bytes:
    return bytes([size]) if size < 128 else bytes([size & 0x7F | 0x80, size >> 7])


def test_five_hundred_strangers_are_closed_at_once(patient: Hub) -> None:
    """Closed for what they have sent, at night within 1 s, with at most 4 KiB kept for each; nothing above level info is logged."""
    hub = patient
    assert hub.process is not None
    pid, port = hub.process.pid, hub.ports["tcp"]
    before, of_the_start = rss_bytes(pid), len(hub.log)  # a start may warn of the machine
    kinds = first_packets()

    with Witness(hub), Crowd(port) as crowd:
        for number in range(GARBAGE):
            crowd.add(kinds[number % len(kinds)])
        closed = crowd.wait_closed(PATIENCE_S)
        peak = rss_bytes(pid)

    assert len(closed) == GARBAGE
    assert max(closed) < AT_ONCE_S
    assert peak - before < 16 << 20
    assert '"level": "error"' not in hub.log
    assert [line for line in hub.log[of_the_start:].splitlines() if '"level": "warning"' in line] == []
    assert "Traceback" not in hub.log


@pytest.mark.parametrize(
    ("start", "is_refused_at_once"),
    [(b"\x10\xff\xff\xff\x7f\x00", True), (b"\x10\xff\xff\x01\x00", False)],
    ids=["256-MB", "within-the-limit"],
)
def test_a_thousand_declared_lengths_cost_nothing(
    hub: Hub, patient: Hub, start: bytes, is_refused_at_once: bool
) -> None:
    """An over-limit CONNECT is closed at once; one that may become valid is closed at the connect timeout."""
    hub = patient if is_refused_at_once else hub
    assert hub.process is not None
    pid, port = hub.process.pid, hub.ports["tcp"]
    before, files = rss_bytes(pid), open_files(pid)

    with Witness(hub), Crowd(port) as crowd:
        begun = time.monotonic()
        for _ in range(LIARS):
            crowd.add(start)
        peak = rss_bytes(pid)
        closed = crowd.wait_closed(PATIENCE_S)
        took = time.monotonic() - begun

    assert len(closed) == LIARS
    assert peak - before < LIARS * (16 << 10)
    if is_refused_at_once:
        assert max(closed) < AT_ONCE_S
    else:
        assert took > TIMEOUT_S
        assert max(closed) < TIMEOUT_S + SOON_S
    until(lambda: open_files(pid) <= files + 10, "descriptors are back")


def test_silent_and_slow_connects_end_at_the_timeout(hub: Hub) -> None:
    """Half-open sockets and a CONNECT of one byte per tenth of a second: no byte prolongs the timeout."""
    port = hub.ports["tcp"]
    with RawClient(port) as sample:
        connect = sample.connect_bytes("slow", "acme/dev1") + b"\0" * 60
    with Witness(hub), Crowd(port) as crowd:
        begun = time.monotonic()
        for _ in range(200):
            crowd.add()
        slow = [crowd.add(connect[:1]) for _ in range(50)]
        is_over = threading.Event()

        def drip() -> None:
            for byte in connect[1:-1]:  # never the last one
                for one in slow:
                    crowd.send(one, bytes([byte]))
                if is_over.wait(0.1):
                    return

        dripping = threading.Thread(target=drip)
        dripping.start()
        closed = crowd.wait_closed(PATIENCE_S)
        took = time.monotonic() - begun
        is_over.set()
        dripping.join()

    assert len(closed) == 250
    assert TIMEOUT_S * 0.8 < took < TIMEOUT_S + SOON_S


def test_the_hub_still_connects_afterwards(hub: Hub) -> None:
    with RawClient(hub.ports["tcp"]) as client:
        assert client.connect("good", "acme/dev1").code == 0
