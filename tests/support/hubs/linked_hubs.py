"""Hubs that are linked by TLS, every store on the real servers, as `docs/guide/cluster.md` sets them up: on this machine, or one on each namespace.

Knows how they are made, struck and asked whether they are well; what is right and wrong under load is `cluster_load`'s.
"""

from __future__ import annotations

import json
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from subprocess import TimeoutExpired

import psutil  # type: ignore[import-untyped]

from ops.services.services import Services
from tests.support.hubs.hub import Hub
from tests.support.hubs.machines import Network, address, machines
from tests.support.hubs.server_hub import own_stores
from tests.support.ports import free_port
from tests.support.servers.sql_servers import own_database

ENDED_S = 10.0


@dataclass
class LinkedHub(Hub):
    """`runs_by`: what its command begins with; `number`: its first node number, `workers`: of how many processes each has one."""

    number: int = 0
    workers: int = 1
    runs_by: list[str] = field(default_factory=list)

    @property
    def numbers(self) -> range:
        return range(self.number, self.number + self.workers)

    def command(self) -> list[str]:
        return [*self.runs_by, *super().command()]

    def is_ready(self) -> bool:
        """Would a load balancer send clients there?"""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.ports['http']}/readyz", timeout=2) as answer:
                return bool(answer.status == 200)
        except (
            OSError,
            HTTPException,
        ):  # HTTPError is an OSError; a relay accepts for a hub that is not there, and closes
            return False

    def processes(self) -> list[psutil.Process]:
        """The hub's process and those that it has started."""
        assert self.process is not None
        with suppress(psutil.NoSuchProcess):
            first = psutil.Process(self.process.pid)
            return [first, *first.children(recursive=True)]
        return []

    def states(self) -> dict[int, str]:
        """Return what `iothub cluster status` says here of each hub; nothing if the hub does not answer."""
        shown = self.run("-o", "json", "cluster", "status", check=False)
        return {row["node"]: row["state"] for row in json.loads(shown.stdout)} if shown.returncode == 0 else {}

    def await_end(self, process: psutil.Process) -> None:
        """Wait until one of its processes that was killed is gone."""
        assert self.process is not None
        if process.pid == self.process.pid:
            self.process.wait(ENDED_S)
        else:
            process.wait(ENDED_S)

    def revive(self) -> None:
        """Start it again if its process has ended; let go on what is stopped."""
        if not self.is_running():
            self.launch()
        for process in self.processes():
            with suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        for process in self.processes():
            with suppress(psutil.NoSuchProcess):
                process.kill()
        with suppress(TimeoutExpired):
            super().close()


@dataclass
class Linked:
    """`network`: between the machines 1, 2, 3 ..., if each hub is on one of its own."""

    hubs: list[LinkedHub]
    network: Network | None

    def start(self, limit_s: float = 90.0) -> None:
        for hub in self.hubs:
            hub.launch()
        self.wait(limit_s)

    def wait(self, limit_s: float) -> None:
        """Until every hub is ready and shows every one as up. Raises AssertionError."""
        wanted = self.all_up()
        deadline = time.monotonic() + limit_s
        while not (all(hub.is_ready() for hub in self.hubs) and all(hub.states() == wanted for hub in self.hubs)):
            assert time.monotonic() < deadline, self.trouble(f"not all up within {limit_s:g} s")
            time.sleep(0.2)

    def all_up(self) -> dict[int, str]:
        """What `LinkedHub.states` returns when all is well."""
        return {number: "up" for hub in self.hubs for number in hub.numbers}

    def trouble(self, what: str) -> str:
        logs = [f"--- {hub.data_dir.name}: {hub.states()}\n{hub.log[-1000:]}" for hub in self.hubs]
        return "\n".join([what, *logs])


@contextmanager
def linked_hubs(
    directory: Path, services: Services, count: int, *, seed: int = 0, workers: int = 1, on_machines: bool = False
) -> Iterator[Linked]:
    """None is started; what runs at the end is killed. `seed`: of the network's losses. `workers`: processes of each hub."""
    services.up("postgresql")
    services.up("redis")
    with own_stores(services) as stores, own_database(services, "postgresql") as url:
        common = {**stores.environment, **_accounts(directory, url), **_redis(services)}
        if workers > 1:
            common["IOTHUB_NODE__WORKERS"] = str(workers)
        hubs = [
            _made(directory, machine, workers, common, services, on_machines=on_machines)
            for machine in range(1, count + 1)
        ]
        _certify(directory, hubs)
        hubs[0].run("hbase", "create-tables")
        hubs[0].tenant("acme", "dev1")
        ports = services.ports
        with (
            machines(
                {machine: list(hub.ports.values()) for machine, hub in enumerate(hubs, 1)},
                (ports.kafka, ports.thrift, ports.redis, ports.postgresql),
                seed,
            )
            if on_machines
            else nullcontext()
        ) as network:
            for machine, hub in enumerate(hubs, 1):
                hub.runs_by = network.command(machine) if network else []
            try:
                yield Linked(hubs, network)
            finally:
                for hub in hubs:
                    hub.close()


def _made(
    directory: Path, machine: int, workers: int, common: dict[str, str], services: Services, *, on_machines: bool
) -> LinkedHub:
    """Links have an address of their own on each hub, so that the ports of its further workers are free."""
    number = 1 + (machine - 1) * workers
    own = {
        "IOTHUB_NODE__NUMBER": str(number),
        "IOTHUB_NODE__NAME": f"hub-{machine}",
        "IOTHUB_CLUSTER__LISTEN": f"{address(machine) if on_machines else f'127.77.0.{machine}'}:{free_port()}",
    }
    hub = LinkedHub(
        directory / f"hub-{machine}",
        {"tcp": free_port(), "http": free_port()},
        environment={**common, **own},
        config_file=services.places.hub_settings,
        is_whole=True,
        number=number,
        workers=workers,
    )
    hub.run("init")
    return hub


def _certify(directory: Path, hubs: Sequence[LinkedHub]) -> None:
    authority = str(directory / "authority")
    hubs[0].run("cluster", "init-ca", authority)
    for hub in hubs:
        for number in hub.numbers:
            hub.run("cluster", "issue", str(number), "--ca", authority)


def _accounts(directory: Path, url: str) -> dict[str, str]:
    url_file = directory / "accounts.url"
    url_file.write_text(f"{url}\n")
    url_file.chmod(0o600)
    return {
        "IOTHUB_SQL__URL_FILE": str(url_file),
        "IOTHUB_AUTH__PEPPER_FILE": str(directory / "pepper"),
        "IOTHUB_AUTH__FAILURES": "off",
    }


def _redis(services: Services) -> dict[str, str]:
    return {
        "IOTHUB_REDIS__ADDRESSES": f'["127.0.0.1:{services.ports.redis}"]',
        "IOTHUB_AUTH__SHARED_CACHE": "redis",
        "IOTHUB_QUOTA__LEDGER": "redis",
    }
