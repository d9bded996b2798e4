"""Two hubs with two workers each, linked by TCP with certificates, every store on the servers: four equal peers."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from ops.services.services import Services
from tests.support.clients.clients import Listener
from tests.support.clients.mqtt_clients import Clients
from tests.support.hubs.linked_hubs import linked_hubs
from tests.support.waiting import PATIENCE_S

READERS = 4  # at each machine: the kernel chooses the worker


def test_workers_of_two_machines_are_one_cluster(services: Services, tmp_path: Path) -> None:
    """Each reads what is published at another one, and a worker that is killed comes back to all others."""
    with linked_hubs(tmp_path, services, 2, workers=2) as linked:
        linked.start()
        assert linked.hubs[0].states() == {1: "up", 2: "up", 3: "up", 4: "up"}
        joins = [Clients(Listener(hub, "tcp")) for hub in linked.hubs]
        readers = [join(5, f"reader-{at}-{n}", keep=True) for at, join in enumerate(joins) for n in range(READERS)]
        for reader in readers:
            reader.subscribe(("machines", 1))

        joins[0](5).publish("machines", b"first", 1, 1)
        joins[1](5).publish("machines", b"second", 1, 1)

        assert [sorted(reader.payloads(2)) for reader in readers] == [[b"first", b"second"]] * len(readers)
        for join in joins:
            join.leave()
        worker = next(each for each in linked.hubs[1].processes() if "--as-worker" in each.cmdline())
        os.kill(worker.pid, signal.SIGKILL)
        worker.wait(10)
        linked.wait(PATIENCE_S)
