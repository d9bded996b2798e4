"""What a connect with its disconnect costs the hub: `PYTHONPATH=. python tests/bench/bench_connect.py [--against OTHER_CHECKOUT]`.

The hub composed as it runs, with a channel in the place of the socket: no kernel and no poller, but the thread of the event log. Clients have a
generated secret and a transient session; their accounts are in memory. With another checkout, compiled and with a `.venv`, both hubs take turns, a
part of a second each: what other processes do to the machine then, they do to both.

`--count` shows the profiler's count of calls instead: Python's functions, and those of built-in types below them.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import os
import pstats
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

BATCH = 25  # connects in one turn of the hub
BATCHES = 16  # in one turn of the measurement
WARM_UP = 40  # batches
_ROOT = Path(__file__).resolve().parents[2]
_PATIENCE_S = 30.0
_SETTINGS = ("listeners.tcp.port=0", "admin.enabled=off", "log.level=error", "auth.cache=1h")


# --- a hub that does what its standard input says. Of another checkout it is run with that one's packages, so it imports nothing of the tests


class _Channel:
    """In the place of a socket."""

    __slots__ = ("closed", "connection", "stream")

    def __init__(self) -> None:
        self.connection: Any = None
        self.stream = None
        self.closed = False

    def wake(self) -> None:
        """Nobody writes: the bytes stay where the bench looks for them."""

    pause = resume = wake

    def close(self, *, abort: bool = False, drains: bool = False) -> None:
        del abort, drains
        self.closed = True


def _connect_packet(number: int, version: int, client_id: str = "", keep_alive_s: int = 60) -> bytes:
    fields = [each.encode() for each in (client_id or f"c{number}", f"bench/dev{number}", "secret")]
    body = b"\x00\x04MQTT" + bytes([version, 0xC2, 0, keep_alive_s]) + (b"\0" if version == 5 else b"")
    body += b"".join(len(each).to_bytes(2, "big") + each for each in fields)
    return bytes([0x10, len(body)]) + body


class _Clients:
    """Connects and disconnects `BATCH` clients in one turn of a composed hub."""

    def __init__(self, parts: Any, version: int) -> None:
        from iothub.base.reasons import Reason

        self._parts = parts
        self._plane = parts.control.plane
        self._acceptor = parts.sockets.listeners._acceptors[0]
        self._version = version
        self._resident = _Channel()
        self._gone = Reason.NETWORK
        self._packets = [_connect_packet(number, version) for number in range(BATCH)]

    def batch(self) -> None:
        plane = self._plane
        channels = self._come()
        for channel in channels:
            out = channel.connection.out
            assert out[:1] == b"\x20", "no CONNACK"
            del out[:]
            plane.feed(channel.connection, b"\xe0\x00")
        plane.end_batch()
        for channel in channels:
            assert channel.closed, "the hub has not closed the connection"
        self._go(channels)

    async def meet(self) -> None:
        """Let the hub read the accounts of those who connect, and one client stay: a hub forgets a tenant without any."""
        self._acceptor.accepted(self._resident, "127.0.0.1", 39_999)
        self._plane.feed(self._resident.connection, _connect_packet(0, self._version, "resident", 0))
        channels = self._come()
        await self._until(lambda: all(channel.connection.version for channel in channels))
        self._go(channels)

    async def settle(self) -> None:
        """Let the thread of the event log write what has happened."""
        self._parts.writers.journal.flush()
        queue = self._parts.writers.journal_thread.queue
        await self._until(lambda: not queue.pending and queue.submitted == queue.answered)

    def _come(self) -> list[_Channel]:
        channels = [_Channel() for _ in range(BATCH)]
        for number, channel in enumerate(channels):
            assert self._acceptor.accepted(channel, "127.0.0.1", 40_000 + number), "the hub lets nobody in"
        self._plane.end_batch()
        for channel, packet in zip(channels, self._packets, strict=True):
            self._plane.feed(channel.connection, packet)
        self._plane.end_batch()
        self._plane.control_queue.spent = 0
        return channels

    def _go(self, channels: list[_Channel]) -> None:
        for channel in channels:
            channel.connection.lost(self._gone)
            channel.connection = None
            self._acceptor.released(channel)

    async def _until(self, is_done: Callable[[], bool]) -> None:
        from twisted.internet.defer import Deferred

        until = time.monotonic() + _PATIENCE_S
        while not is_done():
            assert time.monotonic() < until, "the hub does not get on"
            pause: Deferred[None] = Deferred()
            self._parts.process.reactor.callLater(0.002, pause.callback, None)
            await pause


async def _serve_turns(parts: Any, version: int) -> None:
    """Make a turn for each line of standard input; a line of output says what it took."""
    clients = _Clients(parts, version)
    await clients.meet()
    for _ in range(WARM_UP):
        clients.batch()
        await clients.settle()
    print("ready", flush=True)
    while line := sys.stdin.readline():  # nothing else goes on in this hub meanwhile
        if line == "count\n":
            print(json.dumps(_counted(clients)), flush=True)
            continue
        whole, taken = time.process_time_ns(), []
        for _ in range(BATCHES):
            began = time.thread_time_ns()
            clients.batch()
            taken.append((time.thread_time_ns() - began) / 1e3 / BATCH)
        await clients.settle()
        whole = time.process_time_ns() - whole
        print(json.dumps({"reactor": taken, "process": whole / 1e3 / BATCH / BATCHES}), flush=True)


def _counted(clients: _Clients) -> list[tuple[float, str]]:
    profile = cProfile.Profile()
    profile.enable()
    for _ in range(BATCHES):
        clients.batch()
    profile.disable()
    stats: dict[tuple[str, int, str], Any] = pstats.Stats(profile).stats  # type: ignore[attr-defined]
    connects = BATCH * BATCHES
    calls = [
        (row[1] / connects, f"{'/'.join(Path(file).parts[-3:])}:{line} {name}")
        for (file, line, name), row in stats.items()
        if Path(file).name != Path(__file__).name
    ]
    return sorted(calls, reverse=True)


def _run_hub(folder: str, version: int) -> None:
    from twisted.internet.defer import Deferred
    from twisted.internet.main import installReactor

    from iothub.base.clock import SystemClock
    from iothub.config.datadir import DataDir
    from iothub.config.loader import load
    from iothub.hub.composition.compose import compose
    from iothub.hub.from_settings import configure_log

    try:
        from iothub.hub.hub_process import HubProcess
    except ImportError:  # a checkout that is compared
        from iothub.hub.serve import HubProcess
    from iothub.hub.workers.service_manager import ServiceManager
    from iothub.net.hub_reactor import HubReactor

    data_dir = DataDir(Path(folder))
    loaded = load(file=data_dir.config_file, flags=_SETTINGS)
    settings = loaded.config
    configure_log(settings.log)
    reactor = HubReactor()
    installReactor(reactor)  # type: ignore[no-untyped-call]
    parts = compose(settings, data_dir, reactor, SystemClock())

    def announce(_: str) -> None:
        reactor.callLater(0.1, measure)

    def measure() -> None:
        done = Deferred.fromCoroutine(_serve_turns(parts, version))
        done.addErrback(lambda failure: failure.printTraceback(sys.stderr))
        done.addBoth(lambda _: os._exit(0))  # there is nothing to keep

    HubProcess(parts, announce, cast("Any", None), ServiceManager()).run()


# --- who starts the hubs and asks them in turns


class _Hub:
    """One hub in a process of its own."""

    def __init__(self, checkout: Path, folder: Path, version: int) -> None:
        command = [checkout / ".venv/bin/python", __file__, "--hub", str(folder), "--version", str(version)]
        environment = {**os.environ, "PYTHONPATH": str(checkout)}
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, cwd=checkout
        )
        assert self._read() == "ready\n", f"the hub of {checkout} did not start"

    def ask(self, word: str) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{word}\n")
        self._process.stdin.flush()
        return json.loads(self._read())

    def end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(_PATIENCE_S)

    def _read(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()


def _in_turns(hubs: dict[str, _Hub], turns: int) -> None:
    taken: dict[str, list[dict[str, Any]]] = {name: [] for name in hubs}
    names = list(hubs)
    for turn in range(turns):
        for name in names if turn % 2 else reversed(names):
            taken[name].append(hubs[name].ask("turn"))
    print(f"us of CPU for each connect with its disconnect, {turns} turns of {BATCH * BATCHES}:")
    for name in names:
        batches = [batch for turn in taken[name] for batch in turn["reactor"]]
        whole = [turn["process"] for turn in taken[name]]
        print(f"{name}: reactor thread {_spread(batches)}; whole process {_spread(whole)}")
    if len(names) == 2:
        here, there = (taken[name] for name in names)
        of_reactor = [min(one["reactor"]) / min(other["reactor"]) for one, other in zip(here, there, strict=True)]
        of_process = [one["process"] / other["process"] for one, other in zip(here, there, strict=True)]
        for what, ratios in (("reactor thread, least batch of each turn", of_reactor), ("whole process", of_process)):
            low, middle, high = statistics.quantiles(ratios, n=4)
            print(f"{names[0]} / {names[1]}, {what}: median {middle:.3f}, quartiles {low:.3f} and {high:.3f}")


def _spread(taken: list[float]) -> str:
    low, middle, _ = statistics.quantiles(taken, n=4)
    return f"least {min(taken):.1f}, first quartile {low:.1f}, median {middle:.1f}"


def _count(hub: _Hub) -> None:
    calls = hub.ask("count")
    in_python = sum(count for count, name in calls if not name.startswith("~"))
    print(
        f"{sum(count for count, _ in calls):.1f} calls for each connect, {in_python:.1f} of them of Python's functions:"
    )
    for count, name in calls:
        if count >= 0.01:
            print(f"{count:7.2f} {name}")


def _with_accounts(folder: Path) -> Path:
    """Make a data directory with one tenant, whose devices have generated secrets."""
    from iothub.config.datadir import DataDir
    from iothub_services.auth.secrets import hash_generated
    from iothub_tenants.accounts import tenants
    from iothub_tenants.accounts.database import sqlite_url
    from iothub_tenants.accounts.devices import Credential, CredentialForm, insert_devices
    from iothub_tenants.accounts.initial import init_store
    from tests.support.hubs.hub import Hub

    Hub(folder).init()
    data_dir = DataDir(folder)
    pepper = data_dir.pepper()
    store = init_store(sqlite_url(data_dir.accounts), pepper=pepper)
    tenants.create(store, "bench", plan="unlimited")
    stored = Credential(CredentialForm.GENERATED, hash_generated("secret", pepper))
    with store.write() as writer:
        owner = tenants.living(writer.connection, "bench")
        insert_devices(writer, owner.id, [(f"dev{number}", stored) for number in range(BATCH)])
    store.close()
    return folder


def main() -> None:
    """Measure, or be one of the hubs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", type=Path, help="another checkout, compiled, with a .venv")
    parser.add_argument("--turns", type=int, default=40)
    parser.add_argument("--version", type=int, default=4, choices=(4, 5), help="the Protocol Level")
    parser.add_argument("--count", action="store_true", help="count calls")
    parser.add_argument("--hub", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.hub:
        _run_hub(options.hub, options.version)
        return
    with tempfile.TemporaryDirectory(prefix="bench-connect-") as folder:
        made = _with_accounts(Path(folder) / "here")
        checkouts = {"here": _ROOT}
        if options.against is not None:
            shutil.copytree(made, Path(folder) / "there")
            checkouts["there"] = options.against.resolve()
        hubs = {name: _Hub(checkout, Path(folder) / name, options.version) for name, checkout in checkouts.items()}
        if options.count:
            _count(hubs["here"])
        else:
            _in_turns(hubs, options.turns)
        for hub in hubs.values():
            hub.end()


if __name__ == "__main__":
    main()
