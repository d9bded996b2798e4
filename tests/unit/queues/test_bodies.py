"""Which bodies are dead, and the sweep for those that nobody counted."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

import pytest

from iothub_services.queues.sqlite import bodies as module
from iothub_services.queues.sqlite.bodies import Bodies
from iothub_services.queues.sqlite.schema import SCHEMA


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    for statement in SCHEMA.statements:
        connection.execute(statement)
    yield connection
    connection.close()


def store(connection: sqlite3.Connection, *ids: int) -> None:
    connection.executemany("INSERT INTO body VALUES (?, x'00')", [(i,) for i in ids])


def refer(connection: sqlite3.Connection, *ids: int) -> None:
    connection.executemany("INSERT INTO ref VALUES (1, ?, ?, 1, 1, 0, 0, NULL, NULL, 0)", [(i, i) for i in ids])


def left(connection: sqlite3.Connection) -> list[int]:
    return [row[0] for row in connection.execute("SELECT id FROM body ORDER BY id")]


def finish(bodies: Bodies, connection: sqlite3.Connection) -> None:
    while bodies.has_work:
        bodies.slice(connection)


def test_ids_go_on_above_the_newest_body(connection: sqlite3.Connection) -> None:
    """No id is in use twice at a time."""
    store(connection, 5)
    bodies = Bodies(connection)

    assert [bodies.allocate(), bodies.allocate()] == [6, 7]


def test_body_with_one_reference_dies_with_it(connection: sqlite3.Connection) -> None:
    """And is buried at most so many at a time, neighbours by one statement."""
    store(connection, 1, 2, 3, 7)
    bodies = Bodies(connection)
    for body in (7, 3, 1, 2):
        bodies.released(body, 0, 1)

    bodies.delete_dead(connection, 3)
    assert left(connection) == [2]
    bodies.delete_dead(connection, 3)
    assert left(connection) == []


def test_shared_body_dies_with_its_last_reference(connection: sqlite3.Connection) -> None:
    """Counted from the moment it was stored."""
    store(connection, 1)
    bodies = Bodies(connection)
    bodies.shared(1, 2)
    bodies.released(1, 1, 1)
    bodies.delete_dead(connection, 9)
    assert left(connection) == [1]

    bodies.released(1, 1, 1)
    bodies.delete_dead(connection, 9)
    assert left(connection) == []


@pytest.mark.parametrize("window", [1 << 26, 16, 8])
def test_sweep_keeps_exactly_what_is_referred_to(
    connection: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch, window: int
) -> None:
    """In slices and passes of any size; what is stored meanwhile is not touched."""
    monkeypatch.setattr(module, "_WINDOW", window)
    monkeypatch.setattr(module, "_SLICE", 3)
    store(connection, *range(1, 60))
    kept = [1, 2, 8, 9, 16, 17, 31, 32, 33, 59]
    refer(connection, *kept)
    bodies = Bodies(connection)
    bodies.slice(connection)
    store(connection, bodies.allocate())

    finish(bodies, connection)

    assert left(connection) == [*kept, 60]


def test_sweep_is_due_when_many_uncounted_references_went(connection: sqlite3.Connection) -> None:
    """Shared bodies from before the start."""
    store(connection, 1)
    bodies = Bodies(connection)
    finish(bodies, connection)
    assert not bodies.has_work
    store(connection, 2)
    bodies.allocate()
    for _ in range(1_000):
        bodies.released(2, 1, 1)

    assert bodies.has_work
    finish(bodies, connection)
    assert left(connection) == []


def test_failed_transaction_leaves_everything_to_the_sweep(connection: sqlite3.Connection) -> None:
    """What was noted in it is not true: a body must not be buried for a reference that is still there."""
    store(connection, 1, 2)
    refer(connection, 1)
    bodies = Bodies(connection)
    bodies.released(1, 0, 1)
    bodies.forget()

    bodies.delete_dead(connection, 9)
    finish(bodies, connection)

    assert left(connection) == [1]
