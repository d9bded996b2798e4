"""Hubs with accounts on MariaDB, a cache and a quota ledger on Redis, each with sessions and queues of its own; and crowds that come to them.

Knows how they are started and how a client says CONNECT and PUBLISH; what is right is the tests'.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import struct
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from ops.services.services import Services
from tests.support.clients.packets import packet, string
from tests.support.hubs.hub import Hub
from tests.support.hubs.sql_hub import sql_hubs
from tests.support.servers.sql_servers import own_database
from tests.support.waiting import PATIENCE_S

ANSWER_S = 20.0
WINDOW = 20
ACCEPTED = b"\x20\x02\x00\x00"


@dataclass
class Hubs:
    """`all`: node numbers 1, 2, 3 ..."""

    all: list[Hub]
    redis_port: int

    @property
    def first(self) -> Hub:
        return self.all[0]

    def ports(self) -> list[int]:
        return [hub.ports["tcp"] for hub in self.all]


@contextmanager
def hubs_with_one_ledger(directory: Path, services: Services, count: int = 3) -> Iterator[Hubs]:
    """All are started; what runs at the end is killed."""
    services.up("mariadb")
    services.up("redis")
    redis = {
        "IOTHUB_QUOTA__LEDGER": "redis",
        "IOTHUB_AUTH__SHARED_CACHE": "redis",
        "IOTHUB_REDIS__ADDRESSES": f'["127.0.0.1:{services.ports.redis}"]',
    }
    with own_database(services, "mariadb") as url:
        hubs = Hubs(sql_hubs(directory, url, count), services.ports.redis)
        try:
            for hub in hubs.all:
                hub.environment = {**hub.environment, **redis}
                hub.start()
            yield hubs
        finally:
            for hub in hubs.all:
                hub.close()


def brief(hub: Hub) -> dict[str, object]:
    """What a hub says of itself over HTTP."""
    with urllib.request.urlopen(f"http://127.0.0.1:{hub.ports['http']}/status", timeout=PATIENCE_S) as answer:
        page: dict[str, object] = json.load(answer)
    return page


@dataclass
class Visitor:
    """One connection that was let in."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    @property
    def is_connected(self) -> bool:
        return not self.reader.at_eof()


class Crowd:
    """Clients of one tenant; each has a name of its own."""

    def __init__(self, tenant: str, device: str = "dev1", secret: str = "secret") -> None:
        self._username = f"{tenant}/{device}"
        self._secret = secret
        self._number = 0
        self.visitors: list[Visitor] = []
        self.most = 0  # of them at the same time
        self.refusals: list[bytes] = []

    async def come(self, port: int) -> Visitor | None:
        """Connect once; None: refused."""
        self._number += 1
        names = string(f"v{self._number}") + string(self._username) + string(self._secret)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(packet(0x10, string("MQTT") + b"\x04\xc2" + struct.pack("!H", 0) + names))
        try:
            answer = await asyncio.wait_for(reader.readexactly(4), ANSWER_S)
        except (asyncio.IncompleteReadError, ConnectionError):
            answer = b""
        if answer != ACCEPTED:
            self.refusals.append(answer)
            writer.close()
            return None
        visitor = Visitor(reader, writer)
        self.visitors.append(visitor)
        self.most = max(self.most, self.count)
        return visitor

    @property
    def count(self) -> int:
        """How many are connected, as far as they know."""
        for visitor in self.visitors:
            if not visitor.is_connected:
                visitor.writer.close()
        self.visitors = [visitor for visitor in self.visitors if visitor.is_connected]
        return len(self.visitors)

    async def go(self, count: int | None = None) -> None:
        """So many leave; None: all."""
        gone, self.visitors = self.visitors[:count], self.visitors[len(self.visitors[:count]) :]
        for visitor in gone:
            visitor.writer.write(b"\xe0\x00")
            visitor.writer.close()
        for visitor in gone:
            with contextlib.suppress(ConnectionError):
                await visitor.writer.wait_closed()


@asynccontextmanager
async def crowd(tenant: str) -> AsyncIterator[Crowd]:
    """Everybody leaves at the end."""
    made = Crowd(tenant)
    try:
        yield made
    finally:
        await made.go()


async def publish_for(visitor: Visitor, seconds: float, payload: bytes = b"x") -> int:
    """Publish QoS 1 with a window as fast as it is acknowledged, for so long; return how many were, to the last."""
    loop = asyncio.get_running_loop()
    end, acknowledged, sent = loop.time() + seconds, 0, 0
    while loop.time() < end or acknowledged < sent:
        while sent - acknowledged < WINDOW and loop.time() < end:
            sent += 1
            visitor.writer.write(packet(0x32, string("t/x") + struct.pack("!H", 1 + sent % 60_000) + payload))
        await asyncio.wait_for(visitor.reader.readexactly(4), ANSWER_S)
        acknowledged += 1
    return acknowledged
