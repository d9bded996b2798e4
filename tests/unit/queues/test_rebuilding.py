"""Every kind of damaged page in `queues.db`: the sessions' queues go on, with all that can be read, and nothing that was acknowledged comes back."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from iothub.base.errors import NotFoundError
from iothub.testing.clock import ManualClock
from iothub_services.queues.port import (
    Append,
    Claim,
    Delivery,
    Move,
    MoveKind,
    Place,
    QueueLimits,
    Rebuilt,
    TenantUsage,
)
from iothub_services.queues.sqlite.schema import SCHEMA
from iothub_services.queues.sqlite.store import SqliteQueues
from iothub_services.sqlite.database import open_database

PAGE = SCHEMA.page_bytes
QUEUES = range(1, 7)
MESSAGES = 40
ACKED = 10  # by the first queue
EPOCH = 5
NOW_US = 1_700_000_000_000_000
PLACES = [Place(7, queue_id, EPOCH) for queue_id in QUEUES]
INDEXES = ("queue_tenant", "ref_message", "ref_qos0", "ref_expiry")


def opened(path: Path) -> SqliteQueues:
    return SqliteQueues(open_database(path, SCHEMA, ManualClock(), lambda _name, _text: None))


def one(number: int, *queue_ids: int, qos: int = 1) -> Append:
    body = b"<%d>" % number
    return Append(number.to_bytes(16), body.ljust(500), 0, tuple(Delivery(queue_id, qos) for queue_id in queue_ids))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Six sessions with messages of QoS 1 and 2; one has acknowledged some, released one and is in the middle of a QoS 2 publish."""
    path = tmp_path / "queues.db"
    store = opened(path)
    for queue_id in QUEUES:
        store.create(7, queue_id, QueueLimits(5_000, 1 << 30), EPOCH)
        store.claim(queue_id, b"w")
    for number in range(1, MESSAGES + 1):
        store.append([one(number, *QUEUES, qos=1 + number % 2)])
    store.apply([Move(MoveKind.ACK, 1, EPOCH, ACKED), Move(MoveKind.RELEASE, 1, EPOCH, 11)])
    store.apply([Move(MoveKind.RECORD_INBOUND, 1, EPOCH, 99)])
    store.close()
    return path


def root(path: Path, name: str) -> int:
    with closing(sqlite3.connect(path)) as connection:
        found = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (name,)).fetchone()
        return int(found[0])


def damage(path: Path, page: int, part: slice = slice(PAGE)) -> None:
    content = bytearray(path.read_bytes())
    start = (page - 1) * PAGE
    where = slice(start + (part.start or 0), start + part.stop)
    content[where] = b"\xa5" * (where.stop - where.start)
    path.write_bytes(content)


def rebuilt(store: SqliteQueues, places: list[Place] = PLACES) -> Rebuilt:
    assert store.needs_rebuild
    return store.rebuild(places, NOW_US)


def bodies(store: SqliteQueues, queue_id: int, claim: Claim) -> list[bytes]:
    page = store.read(queue_id, claim.epoch, claim.head, 999, 1 << 20)
    return [record.body.rstrip() for record in page.records]


def sent(first: int = 1) -> list[bytes]:
    return [b"<%d>" % number for number in range(first, MESSAGES + 1)]


def test_whole_store_needs_no_rebuild(path: Path) -> None:
    store = opened(path)

    assert not store.needs_rebuild
    store.close()


@pytest.mark.parametrize("part", [slice(PAGE), slice(0, PAGE // 2), slice(PAGE // 2, PAGE)], ids=["all", "top", "end"])
@pytest.mark.parametrize("name", INDEXES)
def test_damaged_index_costs_nothing(path: Path, name: str, part: slice) -> None:
    """It is made anew from the rows."""
    damage(path, root(path, name), part)

    store = opened(path)

    if store.needs_rebuild:  # else the damage hit what was not used
        assert rebuilt(store) == Rebuilt()
    claim = store.claim(1, b"w")
    assert (claim.epoch, claim.head, claim.tail, claim.released, claim.inbound) == (EPOCH + 1, 10, 40, (11,), (99,))
    assert bodies(store, 1, claim) == sent(ACKED + 1)
    assert bodies(store, 2, store.claim(2, b"w")) == sent()
    store.close()


def test_damaged_page_above_the_bodies_costs_the_messages_and_no_queue(path: Path) -> None:
    """Rows are copied up to the first error: the sessions go on with what comes next (decision 0020)."""
    damage(path, root(path, "body"), slice(PAGE))

    store = opened(path)

    if store.needs_rebuild:
        rebuilt(store)
    assert bodies(store, 1, store.claim(1, b"w")) == []
    (appended,) = store.append([one(99, 1)])
    assert appended.positions[0] > MESSAGES
    store.close()


def test_damaged_first_page_costs_the_file(path: Path) -> None:
    """It says where everything else is; the file is set aside, the sessions of its queues end (decision 0020)."""
    damage(path, 1, slice(PAGE))

    store = opened(path)

    with pytest.raises(NotFoundError):
        store.claim(1, b"w")
    store.close()


@pytest.mark.parametrize("part", [slice(PAGE), slice(0, PAGE // 2), slice(PAGE // 2, PAGE)], ids=["all", "top", "end"])
def test_lost_rows_of_queues_are_made_anew(path: Path, part: slice) -> None:
    """All messages are there, marked as sent before; new positions and epochs are above all earlier ones."""
    damage(path, root(path, "queue"), part)

    store = opened(path)

    assert rebuilt(store) == Rebuilt(6, 230, 0)
    claim = store.claim(1, b"w")
    assert claim.epoch > EPOCH + 1
    assert (claim.head, claim.released, claim.inbound) == (ACKED, (11,), (99,))
    assert claim.tail == claim.reserved > MESSAGES + 65_535
    assert bodies(store, 1, claim) == sent(ACKED + 1)
    assert store.tenant_usage(7) == TenantUsage(230, 230 * 500)
    (appended,) = store.append([one(99, 1, 2)])
    assert appended.positions[0] == claim.tail + 1
    assert store.stats(1).messages == 31
    store.close()


def test_rebuilt_queues_are_as_good_as_others_after_the_next_start(path: Path) -> None:
    """What was rebuilt is durable, and is not done again."""
    damage(path, root(path, "queue"))
    store = opened(path)
    rebuilt(store)
    assert not store.needs_rebuild
    store.close()

    store = opened(path)

    assert not store.needs_rebuild
    assert store.tenant_usage(7) == TenantUsage(230, 230 * 500)
    claim = store.claim(2, b"w")
    store.apply([Move(MoveKind.ACK, 2, claim.epoch, MESSAGES)])
    assert store.stats(2).messages == 0
    store.close()


def test_crash_before_the_rebuild_changes_nothing(path: Path) -> None:
    """The file itself says that something is to be done; a start that did not come so far leaves it to the next."""
    damage(path, root(path, "queue"))
    opened(path).close()

    store = opened(path)

    assert rebuilt(store) == Rebuilt(6, 230, 0)
    store.close()


def test_queue_of_which_nothing_is_left_begins_above_everything(path: Path) -> None:
    """No position was saved, so none is known; no queue was ever as long as the time in microseconds."""
    store = opened(path)
    claim = store.claim(2, b"w")
    store.apply([Move(MoveKind.ACK, 2, claim.epoch, MESSAGES)])
    store.close()
    damage(path, root(path, "queue"))

    store = opened(path)

    assert rebuilt(store) == Rebuilt(6, 190, 1)
    claim = store.claim(2, b"w")
    assert claim.head == claim.tail == claim.reserved == NOW_US
    store.close()


def test_queue_with_only_a_released_position_knows_it(path: Path) -> None:
    """PUBREL goes out for it, so that the receiver's identifier is free again."""
    store = opened(path)
    store.apply([Move(MoveKind.ACK, 1, EPOCH, MESSAGES - 1), Move(MoveKind.RELEASE, 1, EPOCH, MESSAGES)])
    with store._database.transaction() as connection:
        connection.execute("DELETE FROM ref WHERE queue = 1")
    store.close()
    damage(path, root(path, "queue"))

    store = opened(path)
    rebuilt(store)

    claim = store.claim(1, b"w")
    assert (claim.head, claim.released) == (MESSAGES - 1, (MESSAGES,))
    assert MESSAGES + 65_535 < claim.tail < NOW_US
    store.close()


def test_rows_that_were_saved_stay_as_they_are(path: Path) -> None:
    """Only what is missing is made."""
    damage(path, root(path, "ref_expiry"))
    store = opened(path)
    with store._database.transaction() as connection:
        connection.execute("DELETE FROM queue WHERE id = 3")
    store.close()

    store = opened(path)

    assert rebuilt(store) == Rebuilt(1, 40, 0)
    assert (store.stats(2).tail, store.stats(2).epoch, store.stats(2).limits.messages) == (MESSAGES, EPOCH, 5_000)
    assert store.stats(3).epoch > EPOCH
    store.close()


def test_messages_of_a_queue_that_no_session_has_go(path: Path) -> None:
    """Its session ended while the row was lost; the bodies that nobody else refers to go as well."""
    damage(path, root(path, "queue"))
    store = opened(path)
    store.apply([])  # what was to be cleared away before is known

    assert rebuilt(store, PLACES[1:]) == Rebuilt(5, 200, 0)

    while store.idle():
        pass
    with store._database.reading() as connection:
        for table in ("ref", "inbound", "released", "dropped"):
            found = connection.execute(f"SELECT count(*) FROM {table} WHERE queue = 1").fetchone()
            assert found == (0,), table
    assert store.tenant_usage(7) == TenantUsage(200, 200 * 500)
    store.close()


def test_failed_rebuild_leaves_everything_as_it_was(path: Path) -> None:
    """One commit, or none: it is asked for again."""
    damage(path, root(path, "queue"))
    store = opened(path)
    store._database.before_commit.append(lambda _connection: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        rebuilt(store)
    del store._database.before_commit[-1]
    assert store.tenant_usage(7) == TenantUsage(0, 0)

    assert rebuilt(store) == Rebuilt(6, 230, 0)
    assert store.tenant_usage(7) == TenantUsage(230, 230 * 500)
    store.close()


@pytest.mark.parametrize("name", ["inbound", "released"])
def test_lost_identifiers_of_qos_2_cost_no_message(path: Path, name: str) -> None:
    """What was under way may come twice: which it was is not known any more."""
    damage(path, root(path, name))

    store = opened(path)

    assert rebuilt(store) == Rebuilt()
    claim = store.claim(1, b"w")
    assert not (claim.inbound if name == "inbound" else claim.released)
    assert bodies(store, 1, claim) == sent(ACKED + 1)
    store.close()


def test_file_of_which_nothing_can_be_read_needs_no_rebuild(path: Path) -> None:
    """Then the sessions end: nothing says that they went on."""
    path.write_bytes(b"\xa5" * path.stat().st_size)

    store = opened(path)

    assert not store.needs_rebuild
    assert store.list_queues(7) == []
    store.close()


def test_store_that_was_cut_off_keeps_what_is_left(path: Path) -> None:
    """Queues and sessions go on, with the messages whose bodies are in the rest."""
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 2 * PAGE)
    store = opened(path)

    rebuilt(store)

    for queue_id in QUEUES:
        claim = store.claim(queue_id, b"w")
        got = bodies(store, queue_id, claim)
        assert got
        assert got == [body for body in sent() if body in set(got)]
    assert [queue.queue_id for queue in store.list_queues(7)] == list(QUEUES)
    store.close()
