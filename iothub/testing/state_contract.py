"""The contract suite of the session-state port, as functions that take a fresh store.

Knows no driver: `tests/contract` runs `CASES` over all of them.
"""

# ruff: noqa: S101 - assertions are what a contract is made of

from __future__ import annotations

from collections.abc import Callable

from iothub_services.state.port import StateStore, StateWrite, StoredState

Case = Callable[[StateStore], None]


def apply_writes_replaces_and_removes(store: StateStore) -> None:
    """Each row knows the offset that it includes."""
    assert store.apply(5, [StateWrite(1, "a", b"1"), StateWrite(1, "b", b"2")])
    assert store.apply(7, [StateWrite(1, "a", b"3"), StateWrite(1, "b", None), StateWrite(1, "unknown", None)])

    assert store.get(1, "a") == StoredState(1, "a", 7, b"3")
    assert store.get(1, "b") is None
    assert store.applied_offset() == 7


def apply_ignores_an_offset_that_was_applied(store: StateStore) -> None:
    """Two writers, or one that repeats itself: the older fold never overwrites the newer."""
    store.apply(5, [StateWrite(1, "a", b"new")])

    assert not store.apply(5, [StateWrite(1, "a", b"same")])
    assert not store.apply(4, [StateWrite(1, "a", b"old")])
    assert store.get(1, "a") == StoredState(1, "a", 5, b"new")


def load_lists_every_row_in_order(store: StateStore) -> None:
    """More than fit a page of the driver; of all tenants or of one."""
    names = sorted(f"client-{number}" for number in range(1_100))
    store.apply(1, [StateWrite(tenant, name, b"r") for tenant in (2, 1) for name in names])

    assert [(row.tenant_id, row.client_id) for row in store.load()] == [(1, n) for n in names] + [(2, n) for n in names]
    assert [(row.tenant_id, row.client_id) for row in store.load(2)] == [(2, name) for name in names]
    assert list(store.load(3)) == []


def tenants_share_nothing(store: StateStore) -> None:
    """The same Client Identifier in two tenants."""
    store.apply(1, [StateWrite(1, "c", b"one"), StateWrite(2, "c", b"two")])

    assert store.drop_tenant(1) == 1
    assert store.drop_tenant(1) == 0
    assert store.get(1, "c") is None
    assert store.get(2, "c") == StoredState(2, "c", 1, b"two")


def forget_removes_rows_and_keeps_the_offset(store: StateStore) -> None:
    """Tombstones go when the log cannot contradict them any more."""
    store.apply(3, [StateWrite(1, "a", b"x"), StateWrite(1, "b", b"x")])
    store.forget([(1, "a"), (9, "z")])

    assert [row.client_id for row in store.load()] == ["b"]
    assert store.applied_offset() == 3


def empty_store_has_applied_nothing(store: StateStore) -> None:
    """So the whole log is its tail."""
    assert (store.applied_offset(), list(store.load()), store.get(1, "a")) == (0, [], None)


CASES: tuple[Case, ...] = (
    apply_writes_replaces_and_removes,
    apply_ignores_an_offset_that_was_applied,
    load_lists_every_row_in_order,
    tenants_share_nothing,
    forget_removes_rows_and_keeps_the_offset,
    empty_store_has_applied_nothing,
)
