"""The contract suite of the checkpoint port, as functions that take a fresh store.

Knows no driver: `tests/contract` runs `CASES` over all of them.
"""

# ruff: noqa: S101 - assertions are what a contract is made of

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from iothub.base.errors import ConflictError, CorruptRecordError
from iothub.records.checkpoint import Pointer, add_checksums, row_checksum
from iothub_services.state.checkpoints import CheckpointStore, verified
from iothub_services.state.port import StoredState

Case = Callable[[CheckpointStore], None]

NOON_MS = 1_790_000_000_000


def pointer_to(version: int, rows: Iterable[StoredState], offsets: tuple[int, ...] = (9,)) -> Pointer:
    """Return the pointer of a version with these rows, as a job makes it."""
    checksums = [row_checksum(*row) for row in rows]
    return Pointer(version, offsets, len(checksums), add_checksums(checksums), NOON_MS + version)


def rows_of(count: int, tenant_id: int = 1) -> list[StoredState]:
    return [StoredState(tenant_id, f"client-{number:05}", number + 1, b"record %d" % number) for number in range(count)]


def fresh_store_has_no_checkpoint(store: CheckpointStore) -> None:
    """So a start begins from the states, or from the log alone."""
    assert (store.pointer(), store.versions(), list(store.rows(1)), store.drop(1)) == (None, [], [], 0)


def pointer_moves_from_what_it_was_only(store: CheckpointStore) -> None:
    """Of two jobs that began from the same pointer, the second is refused: its checkpoint lacks what the first one has."""
    first, second, third = (pointer_to(version, (), (version, 7)) for version in (1, 2, 3))

    assert store.move(None, first)
    assert not store.move(None, second)
    assert store.pointer() == first
    assert store.move(first, second)
    assert not store.move(first, third)
    assert store.pointer() == second


def rows_come_back_in_order(store: CheckpointStore) -> None:
    """More than fit a page of the driver, written in pieces and in any order, some of them twice."""
    rows = rows_of(1_203, 2) + rows_of(40, 1)
    store.write(5, rows[:700])
    store.write(5, reversed(rows[600:]))

    assert list(store.rows(5)) == sorted(rows)
    assert len(list(verified(pointer_to(5, rows), store.rows(5)))) == len(rows)


def versions_are_apart(store: CheckpointStore) -> None:
    """The same sessions in two versions; the largest version there can be."""
    largest = (1 << 63) - 1
    store.write(largest, [StoredState(1, "a", 9, b"new")])
    store.write(1, [StoredState(1, "a", 3, b"old"), StoredState(1, "b", 3, b"old")])

    assert store.versions() == [1, largest]
    assert list(store.rows(largest)) == [StoredState(1, "a", 9, b"new")]
    assert [row.client_id for row in store.rows(1)] == ["a", "b"]


def version_is_dropped_unless_it_counts(store: CheckpointStore) -> None:
    """Garbage goes; what hubs start from stays."""
    for version in (1, 2):
        store.write(version, rows_of(30))
    store.move(None, pointer_to(2, rows_of(30)))

    assert store.drop(1) == 30
    assert store.versions() == [2]
    with pytest.raises(ConflictError, match="checkpoint 2 is in use"):
        store.drop(2)
    assert len(list(store.rows(2))) == 30


def rows_that_the_pointer_did_not_count_are_noticed(store: CheckpointStore) -> None:
    """One is missing, one is another one: the sum differs."""
    rows = rows_of(20)
    pointer = pointer_to(3, rows)
    store.write(3, rows[:-1])
    with pytest.raises(CorruptRecordError, match="checkpoint 3 has 19 rows with checksum"):
        list(verified(pointer, store.rows(3)))

    store.write(3, [rows[-1]._replace(offset=77)])
    with pytest.raises(CorruptRecordError, match="checkpoint 3 has 20 rows with checksum"):
        list(verified(pointer, store.rows(3)))

    store.write(3, [rows[-1]])
    assert list(verified(pointer, store.rows(3))) == rows


CASES: tuple[Case, ...] = (
    fresh_store_has_no_checkpoint,
    pointer_moves_from_what_it_was_only,
    rows_come_back_in_order,
    versions_are_apart,
    version_is_dropped_unless_it_counts,
    rows_that_the_pointer_did_not_count_are_noticed,
)
