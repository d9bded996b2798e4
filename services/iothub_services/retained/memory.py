"""The retained port in plain Python objects, for tests. Nothing survives.

Knows no file and no thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from iothub_services.retained.port import RetainedBody, RetainedTopic, RetainedUsage, RetainedWrite


class MemoryRetained:
    """Fulfils `RetainedStore`."""

    def __init__(self) -> None:
        self._bodies: dict[tuple[int, bytes], RetainedBody] = {}
        self._versions: dict[int, int] = {}

    def close(self) -> None:
        """Nothing is open."""

    @contextmanager
    def group(self) -> Iterator[None]:
        yield

    def put(self, writes: list[RetainedWrite]) -> list[int]:
        return [self._put(write) for write in writes]

    def load(self, tenant_id: int, after: bytes = b"") -> Iterator[RetainedTopic]:
        for (tenant, topic), stored in sorted(self._bodies.items()):
            if tenant == tenant_id and topic > after:
                yield RetainedTopic(topic, stored.version, stored.expires_at_ms, len(stored.body))

    def fetch(self, tenant_id: int, topics: Iterable[bytes]) -> list[RetainedBody]:
        return [self._bodies[tenant_id, topic] for topic in topics if (tenant_id, topic) in self._bodies]

    def delete(self, tenant_id: int, topics: Iterable[bytes]) -> int:
        gone = [topic for topic in topics if (tenant_id, topic) in self._bodies]
        for topic in gone:
            self._put(RetainedWrite(tenant_id, topic, None))
        return len(gone)

    def expire(self, now_ms: int, count: int) -> list[tuple[int, bytes]]:
        gone = [key for key, stored in self._bodies.items() if 0 < stored.expires_at_ms <= now_ms][:count]
        for tenant_id, topic in gone:
            self._put(RetainedWrite(tenant_id, topic, None))
        return gone

    def usage(self, tenant_id: int) -> RetainedUsage:
        sizes = [len(stored.body) for (tenant, _), stored in self._bodies.items() if tenant == tenant_id]
        return RetainedUsage(len(sizes), sum(sizes))

    def drop_tenant(self, tenant_id: int) -> int:
        keys = [key for key in self._bodies if key[0] == tenant_id]
        for key in keys:
            del self._bodies[key]
        self._versions.pop(tenant_id, None)
        return len(keys)

    def _put(self, write: RetainedWrite) -> int:
        version = self._versions.get(write.tenant_id, 0) + 1
        self._versions[write.tenant_id] = version
        key = (write.tenant_id, write.topic)
        if write.body is None:
            self._bodies.pop(key, None)
        else:
            self._bodies[key] = RetainedBody(write.topic, version, write.expires_at_ms, write.body)
        return version
