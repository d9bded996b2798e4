"""A hub with several workers, as a test sees it: which worker has a client, and the process of each."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Unpack

from iothub.config.datadir import DataDir
from tests.support.clients.clients import unique
from tests.support.clients.mqtt_clients import Client, Clients, ConnectValues
from tests.support.clients.raw import ClosedError
from tests.support.hubs.hub import Hub
from tests.support.waiting import until

FIRST, SECOND = "hub-1-w1", "hub-1-w2"
_ATTEMPTS = 60  # the kernel gives each connection to one of two


class Workers:
    """`hub` runs with `node.workers`."""

    def __init__(self, hub: Hub, join: Clients) -> None:
        self.hub = hub
        self._join = join

    def join(
        self, worker: str, version: int = 5, client_id: str | None = None, **values: Unpack[ConnectValues]
    ) -> Client:
        """Connect a client to that worker: again and again, until the kernel has chosen it. One with a session leaves it as it is."""
        name = client_id or unique()
        for _ in range(_ATTEMPTS):
            seen = len(self._connected(name))
            made = self._join(version, name, **values)
            until(lambda: len(self._connected(name)) > seen, f"a line about {name}")  # noqa: B023 - called at once
            if self.worker_of(name) == worker:
                return made
            made.disconnect()
        raise AssertionError(f"no connection came to {worker}")

    def rejoin(self, client_id: str, **values: Unpack[ConnectValues]) -> Client:
        """Connect anew after a kill, as a client does: a process that is about to end may still be given the connection, and resets it."""
        made: list[Client] = []

        def is_in() -> bool:
            with suppress(OSError, ClosedError):
                made.append(self._join(5, client_id, **values))
            return bool(made)

        until(is_in, f"{client_id} at another worker")
        return made[0]

    def worker_of(self, client_id: str) -> str:
        """Return who has said last that this client has connected."""
        until(lambda: bool(self._connected(client_id)), f"a line about {client_id}")
        return self._connected(client_id)[-1]

    def pid(self, worker: str) -> int:
        noted = DataDir.of_worker(self.hub.data_dir, int(worker.rpartition("w")[2])).read_hub()
        assert noted is not None, f"{worker} does not run"
        return int(str(noted["pid"]))

    def store_pid(self) -> int:
        assert self.hub.process is not None
        (found,) = [pid for pid in children(self.hub.process.pid) if "--store-process" in _command(pid)]
        return found

    def states(self) -> dict[str, str]:
        return {str(row["name"]): str(row["state"]) for row in self.hub.rows("cluster", "status")}

    def _connected(self, client_id: str) -> list[str]:
        lines = [json.loads(line) for line in self.hub.log.splitlines() if '"client connected"' in line]
        return [str(line["process"]) for line in lines if line["client_id"] == client_id]


def children(pid: int) -> list[int]:
    """Return the processes that a process has started and that are there."""
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def _command(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/cmdline").read_text().split("\0")
