"""A fleet of devices with generated secrets that comes to a hub all at once, each saying CONNECT and leaving after the answer.

Knows no hub's insides: what a storm may cost is the tests'.
"""

from __future__ import annotations

import asyncio
import csv
import struct
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.clients.packets import packet, string
from tests.support.hubs.hub import Hub

ANSWER_S = 300.0
DISCONNECT = b"\xe0\x00"


@dataclass(frozen=True)
class Member:
    """One device."""

    name: str
    username: str
    secret: str


@dataclass
class Storm:
    """How it went. `codes`: return codes of CONNACK, how many of each; None: closed without one."""

    codes: Counter[int | None] = field(default_factory=Counter)
    seconds: float = 0.0


def import_fleet(hub: Hub, tenant: str, count: int, directory: Path) -> list[Member]:
    """Make so many devices with one command."""
    names, secrets = directory / "fleet.csv", directory / "fleet-secrets.csv"
    names.write_text("name\n" + "".join(f"fleet-{number}\n" for number in range(count)))
    hub.run("device", "import", tenant, str(names), "--secrets-to", str(secrets))
    with secrets.open(newline="") as file:
        return [Member(row["name"], row["username"], row["secret"]) for row in csv.DictReader(file)]


def storm(port: int, fleet: Sequence[Member], at_once: int) -> Storm:
    """Every member connects once, as fast as the hub answers, so many at the same time."""
    return asyncio.run(_storm(port, fleet, at_once))


async def _storm(port: int, fleet: Sequence[Member], at_once: int) -> Storm:
    result = Storm()
    rest = iter(fleet)

    async def go_on() -> None:
        for member in rest:
            result.codes[await _visit(port, member)] += 1

    began = time.monotonic()
    await asyncio.gather(*(go_on() for _ in range(at_once)))
    result.seconds = time.monotonic() - began
    return result


async def _visit(port: int, member: Member) -> int | None:
    names = string(member.name) + string(member.username) + string(member.secret)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(packet(0x10, string("MQTT") + b"\x04\xc2" + struct.pack("!H", 0) + names))
        answer = await asyncio.wait_for(reader.readexactly(4), ANSWER_S)
        writer.write(DISCONNECT)
        return answer[3]
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    finally:
        writer.close()
