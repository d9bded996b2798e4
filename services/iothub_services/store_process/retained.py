"""The retained port over the store process: the driver of a worker, and the verbs that both sides know.

Knows no table and no wildcard.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from itertools import islice
from pathlib import Path
from typing import Protocol

from iothub.base.clock import Clock
from iothub_services.retained.port import RetainedBody, RetainedStore, RetainedTopic, RetainedUsage, RetainedWrite
from iothub_services.store_process.batches import Batches, Keep
from iothub_services.store_process.connection import OnNotices, StoreConnection
from iothub_services.store_process.frames import data, many, maybe, number, pair, row
from iothub_services.store_process.ports import Port, Probed
from iothub_services.store_process.requests import Requests
from iothub_services.store_process.verbs import Verb

PORT = "retained"

_PAGE = 500  # topics of an index in one answer

VERBS = {
    "put": Verb(
        (many(row(RetainedWrite, number, data, maybe(data), number)),), many(number), is_write=True, is_kept=True
    ),
    "delete": Verb((number, many(data)), number, is_write=True),
    "expire": Verb((number, number), many(row(pair, number, data)), is_write=True),
    "drop_tenant": Verb((number,), number, is_write=True),
    "page": Verb((number, data, number), many(row(RetainedTopic, data, number, number, number))),
    "fetch": Verb((number, many(data)), many(row(RetainedBody, data, number, number, data))),
    "usage": Verb((number,), row(RetainedUsage, number, number)),
}


class KeptRetained(RetainedStore, Probed, Protocol):
    """What the store process needs of the file."""


def retained_port(retained: KeptRetained, clock: Clock, requests: Requests) -> Port:
    """Return the port of the store process."""

    def page(tenant_id: int, after: bytes, count: int) -> list[RetainedTopic]:
        return list(islice(retained.load(tenant_id, after), count))

    return Port(PORT, VERBS, retained, clock, calls={"page": page}, requests=requests)


class RemoteRetained:
    """Fulfils `RetainedStore`. Writing verbs belong to one thread, the others to any."""

    def __init__(
        self,
        path: Path,
        on_notices: OnNotices | None = None,
        *,
        connection: Callable[..., StoreConnection] = StoreConnection,
    ) -> None:
        self._writes = connection(path, PORT, VERBS, is_writer=True, on_notices=on_notices)
        self._reads = connection(path, PORT, VERBS)
        self._puts: Batches[RetainedWrite, int] = Batches(self._writes, lambda write: len(write.body or b""))

    def close(self) -> None:
        self._writes.close()
        self._reads.close()

    def group(self) -> AbstractContextManager[None]:
        """Let a failure inside be repeated by doing everything again, with the same objects: what was put is not put twice."""
        return self._puts.group()

    def probe(self) -> None:
        """Commit something small. Raises BackendError: the store process is away, or its file takes no writes."""
        self._writes.probe()

    def put(self, writes: list[RetainedWrite]) -> list[int]:
        def ask(new: list[RetainedWrite], keep: Keep[int]) -> list[int]:
            return list(self._writes.write("put", new, keep=keep)) if new else []

        return self._puts.do(writes, ask)

    def load(self, tenant_id: int, after: bytes = b"") -> Iterator[RetainedTopic]:
        while True:
            page: list[RetainedTopic] = self._reads.read("page", tenant_id, after, _PAGE)
            yield from page
            if len(page) < _PAGE:
                return
            after = page[-1].topic

    def fetch(self, tenant_id: int, topics: Iterable[bytes]) -> list[RetainedBody]:
        bodies: list[RetainedBody] = self._reads.read("fetch", tenant_id, list(topics))
        return bodies

    def delete(self, tenant_id: int, topics: Iterable[bytes]) -> int:
        return int(self._writes.write("delete", tenant_id, list(topics)))

    def expire(self, now_ms: int, count: int) -> list[tuple[int, bytes]]:
        expired: list[tuple[int, bytes]] = self._writes.write("expire", now_ms, count)
        return expired

    def usage(self, tenant_id: int) -> RetainedUsage:
        usage: RetainedUsage = self._reads.read("usage", tenant_id)
        return usage

    def drop_tenant(self, tenant_id: int) -> int:
        return int(self._writes.write("drop_tenant", tenant_id))
