"""The compiled poller measures how long bytes take: clients and tenants whose bytes are slow hold up nobody. In real time, which it takes itself."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from iothub.testing.echo_plane import EchoConnection
from tests.support.in_process.poller_bench import Bench


@pytest.fixture
def bench(tmp_path) -> Iterator[Bench]:
    made = Bench(str(tmp_path / "socket"))
    yield made
    made.close()


def test_poller_lets_tenants_take_turns(bench) -> None:
    """Thirty clients of one tenant whose bytes take long: another tenant's only client does not wait for all of them."""
    noisy = [bench.client() for _ in range(30)]
    tenant = noisy[0][1].tenant
    for _, connection in noisy:
        connection.tenant = tenant
    quiet, quiet_connection = bench.client()
    for client, _ in [*noisy, (quiet, quiet_connection)]:
        client.sendall(b"x")  # who has a session is known after the first bytes
        bench.turn()
    order: list[EchoConnection] = []

    def slowly(connection, _data) -> None:
        order.append(connection)
        if connection.tenant is tenant:
            time.sleep(0.002)

    bench.plane.on_feed = slowly
    for client, _ in [*noisy, (quiet, quiet_connection)]:
        client.sendall(b"x" * 100)
    bench.turn()

    assert order.index(quiet_connection) < 10
    assert {id(one) for one in order} == {id(one) for _, one in [*noisy, (quiet, quiet_connection)]}


def test_poller_reads_slow_clients_in_smaller_bites(bench) -> None:
    """A client whose bytes take long holds up nobody for longer and longer; who is quick again is read in great bites again."""
    client, connection = bench.client()
    client.sendall(b"x")
    bench.turn()
    connection.chunks.clear()
    bench.plane.on_feed = lambda *_: time.sleep(0.006)
    for _ in range(3):
        client.sendall(bytes(40_000))
        bench.turn()
    slow = list(connection.chunks)
    bench.plane.on_feed = lambda *_: None
    feed_until_great(bench, client, connection.chunks, len(slow))

    assert slow[0] == 40_000
    assert slow[-1] < 10_000
    assert max(connection.chunks[len(slow) :]) == 1 << 16


def test_poller_reads_in_great_bites_again_as_soon_as_they_fit(bench) -> None:
    """A slow moment leaves no client in small bites for ever whose bytes take a while, such as one with a thousand receivers."""
    client, connection = bench.client()
    client.sendall(b"x")
    bench.turn()
    bench.plane.on_feed = lambda *_: time.sleep(0.006)
    for _ in range(3):
        client.sendall(bytes(40_000))
        bench.turn()
    connection.chunks.clear()
    bench.plane.on_feed = lambda *_: time.sleep(0.0012)  # more than a quarter of what is too long, and less than half
    feed_until_great(bench, client, connection.chunks)

    assert min(connection.chunks) < 10_000
    assert max(connection.chunks) == 1 << 16


def feed_until_great(bench, client, chunks: list[int], seen: int = 0) -> None:
    """Send much until it is read in great bites: a few turns, and more where the machine interrupts them."""
    for _ in range(10_000):
        client.sendall(bytes(100_000))
        bench.turn()
        if max(chunks[seen:], default=0) == 1 << 16:
            return
