"""The contract suite of the session-state port, as functions that take a fresh store.

Knows no driver: `tests/contract` runs `CASES` over all of them. In a log of two partitions session 1/a is in the first, 1/d in the second.
"""

# ruff: noqa: S101 - assertions are what a contract is made of

from __future__ import annotations

from collections.abc import Callable

from iothub_services.state.port import StateStore, StateWrite, StoredState

Case = Callable[[StateStore], None]


def apply_writes_replaces_and_removes(store: StateStore) -> None:
    """Each row knows the offset that it includes, in the partition of its key."""
    assert store.apply((5, 9), [StateWrite(1, "a", 5, b"1"), StateWrite(1, "d", 9, b"2")])
    removed = [StateWrite(1, "d", 11, None), StateWrite(1, "unknown", 3, None)]
    assert store.apply((7, 11), [StateWrite(1, "a", 7, b"3"), *removed])

    assert store.get(1, "a") == StoredState(1, "a", 7, b"3")
    assert store.get(1, "d") is None
    assert store.applied_offsets() == (7, 11)


def apply_ignores_what_was_applied(store: StateStore) -> None:
    """One that repeats itself changes nothing."""
    store.apply((5, 2), [StateWrite(1, "a", 5, b"new")])

    assert not store.apply((5, 2), [StateWrite(1, "a", 5, b"same")])
    assert not store.apply((4, 2), [StateWrite(1, "a", 4, b"old")])
    assert store.get(1, "a") == StoredState(1, "a", 5, b"new")


def apply_never_takes_a_row_back(store: StateStore) -> None:
    """Two writers that are ahead of each other in different partitions: the older fold never overwrites the newer."""
    store.apply((5, 2), [StateWrite(1, "a", 5, b"new")])

    assert store.apply((3, 8), [StateWrite(1, "a", 3, b"old"), StateWrite(1, "d", 8, b"d")])
    assert store.get(1, "a") == StoredState(1, "a", 5, b"new")
    assert store.get(1, "d") == StoredState(1, "d", 8, b"d")
    assert store.applied_offsets() == (5, 8)


def apply_takes_over_a_log_with_other_partitions(store: StateStore) -> None:
    """What was applied of the old one says nothing about it."""
    store.apply((5, 2), [])

    assert store.apply((5,), [])
    assert store.applied_offsets() == (5,)


def get_many_finds_those_that_are_there(store: StateStore) -> None:
    """More than fit a call of the driver; in any order."""
    names = [f"client-{number}" for number in range(150)]
    store.apply((2,), [*(StateWrite(1, name, 1, b"r") for name in names), StateWrite(1, "gone", 2, None)])

    found = store.get_many([(1, name) for name in names[20:]] + [(1, "gone"), (1, "unknown"), (2, names[0])])

    assert sorted(found) == sorted(StoredState(1, name, 1, b"r") for name in names[20:])
    assert store.get_many([]) == []


def load_lists_every_row_in_order(store: StateStore) -> None:
    """More than fit a page of the driver; of all tenants or of one."""
    names = sorted(f"client-{number}" for number in range(1_100))
    store.apply((1,), [StateWrite(tenant, name, 1, b"r") for tenant in (2, 1) for name in names])

    assert [(row.tenant_id, row.client_id) for row in store.load()] == [(1, n) for n in names] + [(2, n) for n in names]
    assert [(row.tenant_id, row.client_id) for row in store.load(2)] == [(2, name) for name in names]
    assert list(store.load(3)) == []


def tenants_share_nothing(store: StateStore) -> None:
    """The same Client Identifier in two tenants."""
    store.apply((1,), [StateWrite(1, "c", 1, b"one"), StateWrite(2, "c", 1, b"two")])

    assert store.drop_tenant(1) == 1
    assert store.drop_tenant(1) == 0
    assert store.get(1, "c") is None
    assert store.get(2, "c") == StoredState(2, "c", 1, b"two")


def empty_store_has_applied_nothing(store: StateStore) -> None:
    """So the whole log is its tail."""
    assert (store.applied_offsets(), list(store.load()), store.get(1, "a")) == ((), [], None)


CASES: tuple[Case, ...] = (
    apply_writes_replaces_and_removes,
    apply_ignores_what_was_applied,
    apply_never_takes_a_row_back,
    apply_takes_over_a_log_with_other_partitions,
    get_many_finds_those_that_are_there,
    load_lists_every_row_in_order,
    tenants_share_nothing,
    empty_store_has_applied_nothing,
)
