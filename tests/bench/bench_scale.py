"""What one more client, session, route or hub costs a hub: the figures that `docs/guide/hundred-million.md` multiplies.

`PYTHONPATH=. .venv/bin/python -m tests.bench.bench_scale` takes some minutes and needs no server. Memory is resident memory of a process that does
nothing else; processor time is the hub's alone, user and system.
"""

from __future__ import annotations

import gc
import logging
import multiprocessing
import os
import re
import select
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import psutil  # type: ignore[import-untyped]
import structlog

from iothub.engine.router import Router, Subscription
from iothub.peers.directory_owner import DirectoryOwner
from iothub.peers.ports import PeerId
from iothub.peers.view import View
from iothub.records import events
from iothub.records.events import Event, Subject, decode_event, encode_event
from iothub.testing.reactor_thread import ReactorThread
from iothub_tenants.background.remote_sessions import RemoteSessions
from tests.bench.bench_start import living, make_queues
from tests.support.clients.packets import packet, string
from tests.support.hubs.datadirs import fresh_hub
from tests.support.hubs.hub import Hub
from tests.support.hubs.many_sessions import acme_id
from tests.support.in_process.control_harness import Harness, now, run
from tests.support.in_process.directories_on_sockets import linked_hubs
from tests.support.jobs.event_log import append, make_log

CONNECTIONS = 8_000
PINGING = 2_000
PINGS_PER_S = (1_000, 10_000)
SESSIONS = 100_000
PAGE = 1_000  # events of the log that are applied at once
ENTRIES = 200_000
ROUTES = 200_000
KEYS = 20_000
IDLE_S = 5.0
HUBS = (2, 4, 8)


def _process(hub: Hub) -> psutil.Process:
    assert hub.process is not None
    return psutil.Process(hub.process.pid)


def _cpu_s(hub: Hub) -> float:
    times = _process(hub).cpu_times()
    return float(times.user + times.system)


def _kernel_bytes() -> int:
    """Return what the kernel has in slabs and in socket buffers."""
    slab = int(re.search(r"^Slab:\s+(\d+)", Path("/proc/meminfo").read_text(), re.MULTILINE)[1]) * 1024  # type: ignore[index]
    pages = int(re.search(r"^TCP:.* mem (\d+)", Path("/proc/net/sockstat").read_text(), re.MULTILINE)[1])  # type: ignore[index]
    return slab + pages * 4096


def _connect(port: int, number: int) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", port))
    names = string(f"device-{number:012}") + string("acme/dev1") + string("secret")
    client.sendall(packet(0x10, string("MQTT") + b"\x04\xc2\x00\x00" + names))
    assert client.recv(4) == b"\x20\x02\x00\x00"
    return client


def connections(folder: Path) -> None:
    """Idle clients, one after the other; and what their pings cost."""
    hub = fresh_hub(folder)
    hub.is_whole = True
    hub.start()
    _connect(hub.ports["tcp"], 0).close()
    rss, kernel, cpu = _process(hub).memory_info().rss, _kernel_bytes(), _cpu_s(hub)
    clients = [_connect(hub.ports["tcp"], number) for number in range(1, CONNECTIONS + 1)]
    cpu = _cpu_s(hub) - cpu
    print(f"connection: {(_process(hub).memory_info().rss - rss) / CONNECTIONS:.0f} bytes of the hub, ", end="")
    print(
        f"{(_kernel_bytes() - kernel) / CONNECTIONS / 2:.0f} of the kernel; {cpu / CONNECTIONS * 1e6:.0f} us to connect"
    )
    for rate in PINGS_PER_S:
        print(f"ping, {rate} a second: {_pings(hub, clients[:PINGING], rate):.1f} us")
    for client in clients:
        client.close()
    hub.close()


def _pings(hub: Hub, clients: list[socket.socket], rate: int) -> float:
    """Return the hub's CPU for a ping, in microseconds; the client's is not in it."""
    poll = select.epoll()
    by_number = {client.fileno(): client for client in clients}
    for client in clients:
        poll.register(client, select.EPOLLIN)
    sent, cpu, began = 0, _cpu_s(hub), time.monotonic()
    while (now := time.monotonic() - began) < IDLE_S:
        while sent < now * rate:
            clients[sent % len(clients)].send(b"\xc0\x00")
            sent += 1
        for number, _ in poll.poll(0.001):
            by_number[number].recv(4096)
    poll.close()
    return (_cpu_s(hub) - cpu) / sent * 1e6


def sessions(folder: Path) -> None:
    """A hub that starts on a log of persistent sessions of one subscription each, nobody connected."""
    empty = fresh_hub(folder / "empty")
    full = fresh_hub(folder / "full")
    _log_sessions(full)
    figures = []
    for hub in (empty, full):
        hub.is_whole = True
        began, cpu = time.monotonic(), 0.0
        hub.start(600)
        took, cpu = time.monotonic() - began, _cpu_s(hub)
        figures.append((_process(hub).memory_info().rss, took, cpu))
        hub.close()
    (rss, took, cpu), (more_rss, longer, more_cpu) = figures
    print(
        f"persistent session: {(more_rss - rss) / SESSIONS:.0f} bytes; {(longer - took) / SESSIONS * 1e6:.0f} us of a start",
        end="",
    )
    print(f" ({(more_cpu - cpu) / SESSIONS * 1e6:.0f} us of CPU)")


def _log_sessions(hub: Hub) -> None:
    """Leave a log as if each session had connected, subscribed to one filter of its own and gone."""
    make_log(hub.data_dir / "events.db")
    append(hub.data_dir / "events.db", _events_of_sessions(acme_id(hub), range(1, SESSIONS + 1)))
    make_queues(hub.data_dir / "queues.db", living(hub.data_dir / "events.db"))


def _events_of_sessions(tenant_id: int, numbers: range) -> Iterator[Event]:
    now_ms = int(time.time() * 1000)
    for number in numbers:
        subject = Subject(tenant_id, f"device-{number:012}", number << 24, now_ms)
        yield events.session_created(
            subject, device="dev1", queue_id=number, protocol_version=5, session_expiry_s=86_400
        )
        topic_filter = f"devices/{number:012}/commands"
        yield events.session_subscribed(
            subject,
            topic_filter=topic_filter,
            qos=1,
            no_local=False,
            retain_as_published=False,
            retain_handling=0,
            identifier=0,
            group=None,
        )


def remote_sessions(folder: Path) -> None:
    """Persistent sessions of another hub, of one subscription each, as a hub that follows the log knows them: without the reading of the log."""
    harness = Harness(folder)
    registry = SimpleNamespace(tenant_by_id=lambda _id: harness.accounts.tenants["acme"])
    following = RemoteSessions(harness.hub, cast("Any", registry), cast("Any", run), lambda: "1.1", 1)

    def follow(numbers: range) -> Harness:
        for first in range(numbers.start, numbers.stop, PAGE):
            page = _events_of_sessions(harness.acme.tenant_id, range(first, first + PAGE))
            read = [decode_event(encode_event(event.written_by("2.1"))) for event in page]
            now(following.apply_events(read))
        return harness

    follow(range(1, PAGE))
    grown = _grown(lambda: follow(range(PAGE + 1, PAGE + SESSIONS + 1)), SESSIONS)
    print(f"persistent session of another hub: {grown:.0f} bytes")
    harness.close()


def _grown(make: Callable[[], object], count: int) -> float:
    """Return by how many bytes for each of `count` the process grows."""
    gc.collect()
    before = psutil.Process().memory_info().rss
    made = make()
    gc.collect()
    after = psutil.Process().memory_info().rss
    assert made is not None
    return float(after - before) / count


def routes() -> None:
    """Filters that another hub wants, each of one client's own, in the router of a tenant."""

    def make() -> Router:
        router, peer = Router(), object()
        for number in range(ROUTES):
            router.subscribe(Subscription(peer, b"devices/%012d/commands" % number))
        return router

    began = time.process_time()
    grown = _grown(make, ROUTES)
    print(f"route of another hub: {grown:.0f} bytes, {(time.process_time() - began) / ROUTES * 1e6:.1f} us")


def directory() -> None:
    """An entry of a connected client at the hub that owns its Client Identifier, and who that is."""

    def make() -> DirectoryOwner:
        owner = DirectoryOwner(PeerId(1, 1), lambda *_: None, time.monotonic)
        holders = owner._holders
        for number in range(ENTRIES):
            key = 1, f"device-{number:012}"
            holders.put(key, (PeerId(number % 23, 1), 1_700_000_000_000_000 + number))
        return owner

    print(f"entry of the directory: {_grown(make, ENTRIES):.0f} bytes")
    for members in (3, 23, 230):
        view = View(1, [PeerId(number, 1) for number in range(members)])
        began = time.process_time()
        view.owners()
        found = time.process_time()
        for number in range(KEYS):
            view.owner((1, f"device-{number:012}"))
        each_us = (time.process_time() - found) / KEYS * 1e6
        print(
            f"owner among {members} hubs: {each_us:.1f} us; of all slots, the first time: {(found - began) * 1e3:.0f} ms"
        )


def links(folder: Path) -> None:
    """Hubs of one process that say nothing to each other: what each end of a link costs while it is idle."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    for count in HUBS:
        with ReactorThread() as thread:
            hubs = linked_hubs("compiled", thread, count, folder)
            time.sleep(1.0)
            began = time.process_time()
            time.sleep(IDLE_S)
            spent = (time.process_time() - began) / IDLE_S
            print(
                f"{count} hubs, {count * (count - 1)} ends of links: {spent / count / (count - 1) * 1e6:.0f} us a second for each"
            )
            for hub in hubs:
                hub.close()
        for left in folder.iterdir():
            left.unlink()


def main() -> None:
    print(f"load average {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores", flush=True)
    alone = multiprocessing.get_context("spawn")
    for measure, has_folder in (
        (connections, True),
        (sessions, True),
        (remote_sessions, True),
        (routes, False),
        (directory, False),
        (links, True),
    ):
        with tempfile.TemporaryDirectory() as path:
            process = alone.Process(target=measure, args=(Path(path),) if has_folder else ())
            process.start()
            process.join()
        if process.exitcode:
            sys.exit(f"{measure.__name__} failed")


if __name__ == "__main__":
    main()
