"""Turns: as many as there are at once, tenants in turn, each in its own order."""

from __future__ import annotations

from twisted.internet.defer import Deferred

from iothub_services.auth.fair_queue import FairQueue


def test_tenants_take_turns_and_keep_their_own_order() -> None:
    """However long one's line is."""
    queue, begun = FairQueue(2), []

    async def begin(tenant_id: int, name: str) -> None:
        await queue.acquire(tenant_id)
        begun.append(name)

    for tenant_id, name in ((1, "a1"), (1, "a2"), (1, "a3"), (1, "a4"), (2, "b1"), (1, "a5"), (2, "b2")):
        Deferred.fromCoroutine(begin(tenant_id, name))
    assert begun == ["a1", "a2"]
    for _ in range(5):
        queue.release()

    assert begun == ["a1", "a2", "a3", "b1", "a4", "b2", "a5"]


def test_work_that_is_over_at_once_is_no_recursion() -> None:
    """Thousands wait, and the work fails before it begins."""
    queue, done = FairQueue(1), []

    async def work(number: int) -> None:
        await queue.acquire(1)
        done.append(number)
        queue.release()

    Deferred.fromCoroutine(queue.acquire(1))
    for number in range(5_000):
        Deferred.fromCoroutine(work(number))
    queue.release()

    assert done == list(range(5_000))


def test_names_have_every_other_turn() -> None:
    """Number 0 are those whose tenant nobody knows yet; no fleet and no number of tenants keeps them out."""
    queue, given = FairQueue(1), []

    async def acquire(tenant_id: int) -> None:
        await queue.acquire(tenant_id)
        given.append(tenant_id)

    for tenant_id in (9, 1, 2, 3, 0, 0, 0, 0):
        Deferred.fromCoroutine(acquire(tenant_id))
    for _ in range(8):
        queue.release()

    assert given == [9, 0, 1, 0, 2, 0, 3, 0]
