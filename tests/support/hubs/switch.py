"""The process of a network between namespaces: one TUN device for each machine, packets between them late, lost or cut as it is told.

Run as `python -m tests.support.hubs.switch PLAN`, as root; PLAN (JSON) names the machines, `tests.support.hubs.machines` writes it. Needs no
traffic control of the kernel's, which not every kernel has, and what is lost follows from a seed. It also leads TCP ports into the namespaces
and out of them: a connection to a relay is one to its target, in whichever namespace that is. Orders are lines of JSON on standard input, each
answered by a line. Invariants: packets from one machine to another stay in order. Nothing of it is left when the process has ended but the
namespaces, which are not its.
"""

from __future__ import annotations

import asyncio
import ctypes
import fcntl
import json
import os
import random
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

MTU = 9000
SUBNET = "10.77.0"  # the network of links; the last byte is the machine's number
_TUNSETIFF, _IFF_TUN, _IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
_CLONE_NEWNET = 0x40000000
_CHUNK = 1 << 16
_LONGEST_QUEUE = 4096  # packets on their way between two machines; more are lost, as in a switch
_libc = ctypes.CDLL(None, use_errno=True)


def address(machine: int) -> str:
    return f"{SUBNET}.{machine}"


@dataclass
class Wire:
    """One direction between two machines."""

    delay_s: float = 0.0
    jitter_s: float = 0.0
    loss: float = 0.0
    is_cut: bool = False
    last_due: float = 0.0
    waiting: int = 0
    carried: int = 0
    lost: int = 0


@dataclass
class Switch:
    """Forwards packets. `devices`: the TUN of each machine."""

    chance: random.Random
    devices: dict[int, int] = field(default_factory=dict)
    wires: dict[tuple[int, int], Wire] = field(default_factory=dict)

    def attach(self, machine: int, namespace: str) -> None:
        device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        name = f"ih{os.getpid() % 100_000}x{machine}"
        fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _IFF_TUN | _IFF_NO_PI))
        ip("link", "set", name, "netns", namespace)
        ip("-n", namespace, "addr", "add", f"{address(machine)}/24", "dev", name)
        ip("-n", namespace, "link", "set", name, "mtu", str(MTU), "up")
        for other in self.devices:
            self.wires[other, machine], self.wires[machine, other] = Wire(), Wire()
        self.devices[machine] = device
        asyncio.get_running_loop().add_reader(device, self._readable, machine, device)

    def _readable(self, machine: int, device: int) -> None:
        for _ in range(64):
            try:
                packet = os.read(device, _CHUNK)
            except BlockingIOError:
                return
            self._forward(machine, packet)

    def _forward(self, source: int, packet: bytes) -> None:
        wire = self.wires.get((source, packet[19])) if packet[0] >> 4 == 4 else None
        if wire is None:
            return  # IPv6's own chatter, and multicast
        if wire.is_cut or wire.waiting >= _LONGEST_QUEUE or (wire.loss and self.chance.random() < wire.loss):
            wire.lost += 1
            return
        wire.carried += 1
        if not wire.delay_s and not wire.waiting:
            self._deliver(self.devices[packet[19]], packet)
            return
        loop = asyncio.get_running_loop()
        wire.last_due = max(wire.last_due, loop.time() + wire.delay_s + wire.jitter_s * self.chance.random())
        wire.waiting += 1
        loop.call_at(wire.last_due, self._arrive, wire, self.devices[packet[19]], packet)

    def _arrive(self, wire: Wire, device: int, packet: bytes) -> None:
        wire.waiting -= 1
        if not wire.is_cut:
            self._deliver(device, packet)

    def _deliver(self, device: int, packet: bytes) -> None:
        with suppress(OSError):  # its queue is full, or the device is down: lost, as on a network
            os.write(device, packet)


class Relays:
    """TCP ports that lead into a namespace or out of it."""

    def __init__(self) -> None:
        self._servers: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def add(self, at: str | None, to: str | None, port: int) -> None:
        """Listen at a port of loopback in one namespace (None: the process's own), connect to the same one in another."""
        with inside(at):
            listening = socket.socket()
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(("127.0.0.1", port))

        async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with inside(to):
                onward = socket.socket()
            onward.setblocking(False)
            try:
                await asyncio.get_running_loop().sock_connect(onward, ("127.0.0.1", port))
            except OSError:
                onward.close()
                writer.transport.abort()
                return
            there = await asyncio.open_connection(sock=onward)
            await asyncio.gather(_pump(reader, there[1]), _pump(there[0], writer))

        self._servers.append(await asyncio.start_server(accepted, sock=listening, backlog=1024))


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(_CHUNK):
            writer.write(data)
            await writer.drain()
        writer.close()
    except OSError:
        writer.transport.abort()


@contextmanager
def inside(namespace: str | None) -> Iterator[None]:
    """What is made here belongs to that network namespace. The process has one thread."""
    if namespace is None:
        yield
        return
    own, other = os.open("/proc/self/ns/net", os.O_RDONLY), os.open(f"/run/netns/{namespace}", os.O_RDONLY)
    try:
        _enter(other)
        yield
    finally:
        _enter(own)
        os.close(own)
        os.close(other)


def _enter(namespace: int) -> None:
    if _libc.setns(namespace, _CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "setns")


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


async def _serve(plan: dict[str, object]) -> None:
    switch, relays = Switch(random.Random(int(str(plan["seed"])))), Relays()
    machines: dict[str, dict[str, object]] = plan["machines"]  # type: ignore[assignment]
    for text, machine in machines.items():
        namespace = str(machine["namespace"])
        switch.attach(int(text), namespace)
        for port in machine["inward"]:  # type: ignore[attr-defined]
            await relays.add(None, namespace, port)
        for port in machine["outward"]:  # type: ignore[attr-defined]
            await relays.add(namespace, None, port)
    orders = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    _answer({})
    while line := await orders.readline():
        _obey(switch, json.loads(line))


def _obey(switch: Switch, order: dict[str, object]) -> None:
    """`wires`: [from, to] of those that the other members are for, absent: all. The answer has what each wire has carried and lost."""
    chosen = order.pop("wires", None)
    for pair, wire in switch.wires.items():
        if chosen is None or list(pair) in chosen:  # type: ignore[operator]
            for name, value in order.items():
                setattr(wire, name, value)
    _answer({f"{a}-{b}": [wire.carried, wire.lost] for (a, b), wire in switch.wires.items()})


def _answer(facts: dict[str, list[int]]) -> None:
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(_serve(json.loads(sys.argv[1])))
