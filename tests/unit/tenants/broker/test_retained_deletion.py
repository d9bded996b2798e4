"""Retained messages deleted by the thousand: others get their turns meanwhile, and who waits hears how far it is."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

from twisted.internet.defer import Deferred

from iothub.engine.state import TenantPlane
from iothub.testing.clock import ManualClock
from iothub_services.damaged import uncounted
from iothub_services.quota.ledger import LocalLedger
from iothub_services.quota.names import Quota
from iothub_services.quota.resolve import resolve_texts
from iothub_services.retained.port import RetainedBody, RetainedTopic
from iothub_tenants.broker.retaining import NODES, SLICE, Retaining

COUNT = 3000


class Stored:
    """So many topics, every tenth below `b`; what is asked of it, in order."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.deleted: list[bytes] = []

    async def load(self, tenant_id: int) -> list[RetainedTopic]:
        return [RetainedTopic(topic(number), number + 1, 0, 70) for number in range(COUNT)]

    async def fetch(self, tenant_id: int, topics: Iterable[bytes]) -> list[RetainedBody]:
        assert list(topics) == []
        self.asked.append("turn")
        return []

    async def delete(self, tenant_id: int, topics: Iterable[bytes]) -> int:
        chosen = list(topics)
        self.asked.append("delete")
        self.deleted += chosen
        return len(chosen)


def topic(number: int) -> bytes:
    return b"%s/%d" % (b"a" if number % 10 else b"b", number)


def test_great_deletion_is_done_in_slices() -> None:
    """The search in the index is sliced, too; every slice is told, and the room of all is given back."""
    store, progress = Stored(), list[tuple[int, int]]()
    ledger = LocalLedger(1, resolve_texts("retained_messages=10000"), cast("Any", None))
    kept = Retaining(TenantPlane(1, "acme"), cast("Any", None), cast("Any", store), ledger, ManualClock(), uncounted)

    async def on_progress(done: int, of: int) -> None:
        progress.append((done, of))

    results: list[int] = []
    Deferred.fromCoroutine(kept.load())
    store.asked.clear()
    Deferred.fromCoroutine(kept.delete(b"a/#", on_progress)).addCallback(results.append)

    matching = COUNT * 9 // 10
    assert results == [matching]
    assert store.asked.index("delete") >= matching // NODES
    assert progress == [(min(done, matching), matching) for done in range(SLICE, matching + SLICE, SLICE)]
    assert {name[:2] for name in store.deleted} == {b"a/"}
    assert ledger.used(Quota.RETAINED_MESSAGES) == COUNT - matching
