"""A running hub with as many small tenants as quota tests want: each with its own limits, a few devices, and its own metrics.

Knows the accounts' verbs, because a process of the command for every tenant would take longer than the tests; what must be proven of the
command itself is run through it (`Tenancy.command`).
"""

from __future__ import annotations

import sqlite3
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Unpack

from sqlalchemy import event

from iothub_tenants.accounts import devices, quotas, tenants
from iothub_tenants.accounts.database import sqlite_url
from iothub_tenants.accounts.store import AccountStore
from tests.support.clients.clients import unique
from tests.support.clients.packets import CONNACK, PUBLISH, Packet, Properties
from tests.support.clients.raw import ClosedError, ConnectOptions, RawClient
from tests.support.hubs.hub import Hub
from tests.support.waiting import PATIENCE_S, until

DEVICES = ("dev1", "dev2")
REFUSED_3X, REFUSED_5 = 0x80, 0x97


@dataclass
class Harness:
    """One hub process and access to its accounts."""

    hub: Hub
    store: AccountStore
    tenants: list[Tenancy] = field(default_factory=list)

    def tenant(self, *limits: str, device: tuple[str, ...] = ()) -> Tenancy:
        """A new tenant on plan `unlimited` with these limits of its own; `device`: those of `dev1`."""
        name = unique("q")
        tenants.create(self.store, name, plan="unlimited")
        made = Tenancy(self, name)
        for each in DEVICES:
            made.secrets[each] = str(devices.create(self.store, name, each).secret)
        if limits:
            quotas.set_limits(self.store, name, limits)
        if device:
            quotas.set_limits(self.store, name, device, "dev1")
        self.tenants.append(made)
        return made

    def clear(self) -> None:
        """All clients go."""
        for tenant in self.tenants:
            for client in tenant.clients:
                client.close()
        self.tenants.clear()


@dataclass
class Tenancy:
    """One tenant and the clients that it has been given."""

    harness: Harness
    name: str
    secrets: dict[str, str] = field(default_factory=dict)
    clients: list[RawClient] = field(default_factory=list)

    def ask(
        self, version: int, client_id: str = "", *, device: str = "dev1", **options: Unpack[ConnectOptions]
    ) -> tuple[RawClient, Packet | None]:
        """Connect and return the CONNACK; None: closed without one."""
        client = RawClient(self.harness.hub.ports["tcp"], version)
        self.clients.append(client)
        try:
            answer = client.connect(client_id or unique(), f"{self.name}/{device}", self.secrets[device], **options)
        except ClosedError:
            return client, None
        return client, answer

    def connect(
        self, version: int, client_id: str = "", *, device: str = "dev1", **options: Unpack[ConnectOptions]
    ) -> RawClient:
        """Connect successfully."""
        client, answer = self.ask(version, client_id, device=device, **options)
        assert answer is not None
        assert answer.code == 0, answer
        return client

    def keep(self, version: int, client_id: str, *, device: str = "dev1") -> RawClient:
        """Connect with a session that outlives the connection."""
        props: Properties | None = [(0x11, 0xFFFFFFFF)] if version == 5 else None
        return self.connect(version, client_id, device=device, clean=False, props=props)

    def command(self, *words: str) -> None:
        """`iothub quota VERB TENANT ...` as an operator types it."""
        verb, *rest = words
        self.harness.hub.run("quota", verb, self.name, *rest)
        self.apply()

    def set(self, *limits: str, device: str | None = None) -> None:
        """Change limits under the running hub and let it apply them."""
        quotas.set_limits(self.harness.store, self.name, limits, device)
        self.apply()

    def apply(self) -> None:
        """Let the hub apply what was changed: it does so before it answers `explain`."""
        self.harness.hub.run("explain", "subscribe", f"{self.name}/dev1", "t", check=False)

    # --- what the hub counted

    def metrics(self) -> dict[str, float]:
        """All series of the tenant, by name and labels but the tenant's: `iothub_tenant_quota_used{quota="sessions"}`."""
        url = f"http://127.0.0.1:{self.harness.hub.ports['http']}/metrics/tenants?tenant={self.name}"
        with urllib.request.urlopen(url, timeout=PATIENCE_S) as page:
            lines = page.read().decode().splitlines()
        found = (line.rsplit(" ", 1) for line in lines if line and not line.startswith("#"))
        return {series.replace(f'tenant="{self.name}",', ""): float(value) for series, value in found}

    def refused(self, quota: str) -> int:
        return int(self.metrics().get(f'iothub_tenant_quota_rejections_total{{quota="{quota}"}}', 0))

    def tried(self, quota: str) -> int:
        return int(self.metrics().get(f'iothub_tenant_quota_trials_total{{quota="{quota}"}}', 0))

    def used(self, quota: str) -> int:
        return int(self.metrics()[f'iothub_tenant_quota_used{{quota="{quota}"}}'])

    def comes_to_use(self, quota: str, count: int) -> None:
        """Wait until the hub, which gives back by itself soon, counts this much."""
        until(lambda: self.used(quota) == count, f"the use of {quota} is {count}")

    def dropped(self, reason: str) -> int:
        return int(self.metrics().get(f'iothub_tenant_messages_dropped_total{{reason="{reason}"}}', 0))


@contextmanager
def open_harness(hub: Hub) -> Iterator[Harness]:
    """The accounts of an initialised data directory."""
    store = AccountStore(sqlite_url(hub.data_dir / "accounts.db"), pepper=(hub.data_dir / "pepper").read_bytes())
    event.listen(store.engine, "connect", _hurry)
    made = Harness(hub, store)
    try:
        yield made
    finally:
        made.clear()
        store.close()


def _hurry(connection: sqlite3.Connection, _record: object) -> None:
    """What tests set up need not survive a power cut."""
    connection.execute("PRAGMA synchronous = OFF")


def publish_until_refused(client: RawClient, topic: str, count: int, qos: int, payload: bytes = b"x") -> list[int]:
    """Publish one after another; returns the codes of the answers, the last one -1 if the hub closed instead."""
    codes: list[int] = []
    for number in range(1, count + 1):
        try:
            answer = client.publish(topic, payload, qos, number)
        except ClosedError:
            return [*codes, -1]
        codes.append(0 if answer is None else answer.code)
    return codes


def closing_packets(client: RawClient) -> list[tuple[int, int]]:
    """(type, code) of what came until the hub closed, CONNACK and messages aside."""
    return [(packet.kind, packet.code) for packet in client.expect_closed() if packet.kind not in (CONNACK, PUBLISH)]
