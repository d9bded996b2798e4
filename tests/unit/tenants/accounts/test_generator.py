"""The unique-id generator (B50, B66): rising, never twice, whatever dies."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from iothub.base.ids import TenantId
from iothub.testing.clock import ManualClock
from iothub_tenants.accounts.generator import BLOCK, BlockSource, QueueIds
from iothub_tenants.accounts.store import AccountStore


def test_ids_rise_across_blocks(store: AccountStore) -> None:
    """From 1: 0 means no queue."""
    source = BlockSource(store, size=4)

    assert [source.allocate() for _ in range(10)] == list(range(1, 11))


def test_killed_process_loses_the_rest_of_its_block(store: AccountStore) -> None:
    """A new one begins behind it; no id comes twice."""
    first = BlockSource(store)
    before = first.allocate()

    after = BlockSource(store).allocate()

    assert after - before == BLOCK


def test_two_processes_share_the_counter(store: AccountStore, url: str, clock: ManualClock) -> None:
    """In threads, so that blocks are reserved at the same time."""
    other = AccountStore(url, clock=clock)
    sources = [BlockSource(store, size=3), BlockSource(other, size=3)]

    with ThreadPoolExecutor(4) as pool:
        ids = list(pool.map(lambda number: sources[number % 2].allocate(), range(100)))

    other.close()
    assert len(set(ids)) == 100


def test_tenants_have_generators_over_one_source(store: AccountStore) -> None:
    """Each counts its own; ids are unique over all tenants."""
    source = BlockSource(store)
    acme, other = QueueIds(TenantId(1), source), QueueIds(TenantId(2), source)

    ids = [acme.allocate(), other.allocate(), acme.allocate()]

    assert ids == [1, 2, 3]
    assert (acme.issued, other.issued) == (2, 1)


def test_id_without_waiting_is_there_while_the_block_lasts(store: AccountStore) -> None:
    """None means: a transaction is needed, so ask in a thread."""
    ids = QueueIds(TenantId(1), BlockSource(store, size=2))

    found = [ids.allocate_nowait(), ids.allocate(), ids.allocate_nowait(), ids.allocate_nowait()]

    assert found == [None, 1, 2, None]
    assert ids.issued == 2


def test_source_in_use_by_another_thread_is_not_waited_for(store: AccountStore) -> None:
    """That thread may be in a transaction."""
    source = BlockSource(store)
    source.allocate()

    with source._lock, ThreadPoolExecutor(1) as pool:
        found = pool.submit(source.allocate_nowait).result()

    assert found is None


def test_ids_of_hubs_that_share_the_counter_rise_in_the_order_in_which_they_are_taken(store: AccountStore) -> None:
    """Epochs are made of them: a session that begins later must have the higher one, at whichever hub. A block from before is not gone on with."""
    one, two = BlockSource(store), BlockSource(store)
    before = one.allocate()
    for source in (one, two):
        source.share(True)

    together = [source.allocate() for source in (one, two, one, two)]
    assert one.allocate_nowait() is None
    for source in (one, two):
        source.share(False)
    assert one.allocate_nowait() is None
    after = [one.allocate(), one.allocate_nowait()]

    assert together == sorted(together)
    assert before + BLOCK <= together[0]
    assert after == [together[-1] + 1, together[-1] + 2]


def test_block_is_outdated_when_others_took_ids_meanwhile(store: AccountStore) -> None:
    """Also when nothing was taken from it while they did."""
    source = BlockSource(store)
    source.allocate()
    source.share(True)
    others = BlockSource(store).allocate()
    source.share(False)

    assert source.allocate_nowait() is None
    assert source.allocate() > others


def test_block_that_is_on_its_way_when_another_hub_comes_is_not_used_up(
    store: AccountStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one's ids are above the whole block."""
    source = BlockSource(store)
    reserve = source._reserve

    def joined(size: int) -> tuple[int, int]:
        block = reserve(size)
        source.share(True)
        return block

    with monkeypatch.context() as patched:
        patched.setattr(source, "_reserve", joined)
        source.allocate()
    others = BlockSource(store).allocate()

    assert source.allocate_nowait() is None
    source.share(False)
    assert source.allocate_nowait() is None
    assert source.allocate() > others
