"""Hubs with queues in the real Redis, below a prefix of a test's own.

Knows the server's port, and how the driver's connections are made; what is done to the server the tests say.
"""

from __future__ import annotations

import subprocess
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from iothub.base.units import Endpoint
from iothub.config.sections import Redis
from iothub.testing.queue_contract import TENANT
from iothub_services.queues.port import QueueLimits
from iothub_services.queues.redis.store import RedisQueues
from iothub_services.redis.blocking import BlockingRedis
from iothub_services.redis.from_settings import blocking
from ops.services.places import HOST
from ops.services.services import Services
from tests.support.ports import free_port
from tests.support.servers.queue_writers import WritingHub, check_written, hubs_writing

DATABASE = 41  # nobody else's: it is emptied


@dataclass(frozen=True)
class RedisQueueHarness:
    """The queues below one prefix, and hubs that use them."""

    services: Services
    prefix: str = field(default_factory=lambda: f"queues-{uuid.uuid4().hex}")
    lost: list[str] = field(default_factory=list)
    back: list[str] = field(default_factory=list)

    def connection(self, *ports: int) -> BlockingRedis:
        """To the server of `services`, or to the master among others."""
        addresses = tuple([Endpoint(HOST, port) for port in ports or (self.services.ports.redis,)])
        return blocking(Redis(addresses=addresses, database=DATABASE), "iothub-test")

    @contextmanager
    def store(self, *ports: int) -> Iterator[RedisQueues]:
        write, read = self.connection(*ports), self.connection(*ports)
        with closing(write), closing(read):
            yield RedisQueues(
                write.write_many, read.run_many, self.prefix, on_lost=self.lost.append, on_back=self.back.append
            )

    def create(self, queues: Sequence[int]) -> None:
        with self.store() as store:
            for queue_id in queues:
                store.create(TENANT, queue_id, QueueLimits(0, 0))

    @contextmanager
    def writing(
        self, hubs: int, queues: Sequence[int], *, port: int | None = None, is_reading: bool = False
    ) -> Iterator[list[WritingHub]]:
        """Let so many hubs write; behind it all of them have been answered, and none has met what it must not."""
        with ExitStack() as stack:
            ports = () if port is None else (port,)
            stores = [stack.enter_context(self.store(*ports)) for _ in range(hubs)]
            yield stack.enter_context(hubs_writing(stores, queues, is_reading=is_reading))

    def check(self, hubs: Sequence[WritingHub], queues: Sequence[int]) -> None:
        with self.store() as store:
            check_written(store, hubs, queues)

    @contextmanager
    def replica(self, folder: Path) -> Iterator[int]:
        """Run a second server that copies the first one; gives its port. Killed afterwards."""
        port = free_port()
        settings = ("--port", str(port), "--bind", HOST, "--dir", str(folder), "--appendonly", "yes", "--save", "")
        copying = ("--appendfsync", "always", "--replicaof", HOST, str(self.services.ports.redis), "--databases", "64")
        process = subprocess.Popen(["redis-server", *settings, *copying], stdout=subprocess.DEVNULL)
        try:
            yield port
        finally:
            process.kill()
            process.wait()

    def remove(self) -> None:
        """Delete every key of the prefix."""
        with closing(self.connection()) as redis:
            keys = redis.run("KEYS", f"{self.prefix}:*")
            if isinstance(keys, list) and keys:
                redis.run("UNLINK", *[key for key in keys if isinstance(key, bytes)])
