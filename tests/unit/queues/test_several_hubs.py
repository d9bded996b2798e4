"""Queues that several hubs work with, in each driver on a server: what one hub does is seen by the others when they need it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from iothub.base.errors import NotFoundError
from iothub.testing.queue_contract import GONE, TENANT, made, moved, one, positions
from iothub_services.queues.port import Appended, MoveKind, QueueLimits, QueueStore, TenantUsage
from tests.support.hbase.hbase_queues import HBase
from tests.support.servers.redis_queues import RedisHarness

Hub = Callable[[int], QueueStore]
"""Opens the store of a hub, by its number."""


def on_redis() -> Hub:
    return RedisHarness().store


def on_hbase() -> Hub:
    harness = HBase()
    return lambda number: harness.store(number)[0]


@pytest.fixture(params=[on_redis, on_hbase])
def hub(request: pytest.FixtureRequest) -> Hub:
    opened: Hub = request.param()
    return opened


def test_queue_that_another_hub_has_made_meanwhile_is_found(hub: Hub) -> None:
    """By moves, too: False would say that somebody else reads it."""
    store, other = hub(1), hub(2)
    made(store, 9)
    epoch = made(other, 1).epoch
    other.append([one(1, 1), one(1, 2)])

    assert moved(store, MoveKind.ACK, 1, epoch, 1)

    assert positions(other, 1, epoch) == [2]


def test_claim_counts_what_other_hubs_have_stored(hub: Hub) -> None:
    store, other = hub(1), hub(2)
    made(store, 1)
    other.append([one(1, 1)])
    assert store.tenant_usage(TENANT) == TenantUsage(0, 0)

    store.claim(1, b"again")

    assert store.tenant_usage(TENANT) == TenantUsage(1, 2)


@pytest.mark.parametrize("verb", ["claim", "append", "apply", "purge", "set_limits"])
def test_queue_that_another_hub_has_dropped_is_gone_and_counts_no_more(hub: Hub, verb: str) -> None:
    store, other = hub(1), hub(2)
    epoch = made(store, 1).epoch
    store.append([one(1, 1)])
    other.drop(1)

    if verb == "claim":
        with pytest.raises(NotFoundError):
            store.claim(1, b"again")
    elif verb == "append":
        assert store.append([one(1, 2)]) == [Appended((GONE,))]
    elif verb == "apply":
        assert not moved(store, MoveKind.RESERVE, 1, epoch, 1)
    elif verb == "purge":
        with pytest.raises(NotFoundError):
            store.purge(1)
    else:
        store.set_limits([(1, QueueLimits())])

    assert store.tenant_usage(TENANT) == TenantUsage(0, 0)


def test_fenced_reader_keeps_the_queue_in_its_sums(hub: Hub) -> None:
    """Somebody else reads the queue; this hub may append to it as before."""
    store, other = hub(1), hub(2)
    epoch = made(store, 1).epoch
    store.append([one(1, 1)])
    later = other.claim(1, b"other").epoch

    assert not moved(store, MoveKind.ACK, 1, epoch, 1)

    assert store.tenant_usage(TENANT) == TenantUsage(1, 2)
    assert positions(other, 1, later) == [1]
