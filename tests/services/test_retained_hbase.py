"""Retained messages on the real HBase: the contract of the port, versions of hubs that share a table, and kill -9 in the middle of writing."""

from __future__ import annotations

import threading

import pytest

from iothub.errors import BackendError
from iothub.testing.retained_contract import CASES, Case
from iothub_services.hbase.direct import DirectCaller
from iothub_services.hbase.tables import Tables
from iothub_services.retained.hbase import HBaseRetained
from iothub_services.retained.port import RetainedWrite
from ops.services.house import Services
from tests.support.hbase_tables import caller, until_done

STORE_TABLES = "retained", len(CASES) + 4  # of the contract, and of the tests behind it
HUBS = 4
ROUNDS = 40

pytestmark = pytest.mark.timeout(600)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_retained_contract(case: Case, tables: Tables, tools: DirectCaller) -> None:
    """HBase does what every driver does, over the bounds of regions."""
    case(HBaseRetained(tools, tables))


class Hub(threading.Thread):
    """Puts and deletes the same few topics as all others; repeats what is not answered, with new versions."""

    def __init__(self, services: Services, tables: Tables, number: int, is_over: threading.Event) -> None:
        super().__init__()
        self.answered: dict[int, tuple[bytes, bytes | None]] = {}  # version -> (topic, body)
        self.repeats = 0
        self.failure: BaseException | None = None
        self._services = services
        self._tables = tables
        self._number = number
        self._is_over = is_over

    def run(self) -> None:
        try:
            with caller(self._services) as own:
                self._write(HBaseRetained(own, self._tables))
        except BaseException as error:  # shown by the test's own thread
            self.failure = error

    def _write(self, store: HBaseRetained) -> None:
        round_ = 0
        while round_ < ROUNDS or not self._is_over.is_set():
            round_ += 1
            writes = [
                RetainedWrite(
                    1, b"t/%d" % topic, None if (round_ + topic) % 5 == 0 else b"%d/%d" % (self._number, round_)
                )
                for topic in range(10)
            ]
            versions = until_done(lambda some=writes: self._put(store, some))  # type: ignore[misc]
            assert versions == sorted(versions)
            self.answered |= {version: (w.topic, w.body) for version, w in zip(versions, writes, strict=True)}

    def _put(self, store: HBaseRetained, writes: list[RetainedWrite]) -> list[int]:
        try:
            return store.put(writes)
        except BackendError:
            self.repeats += 1
            raise


def written_by_all(services: Services, tables: Tables, is_over: threading.Event) -> list[Hub]:
    hubs = [Hub(services, tables, number, is_over) for number in range(HUBS)]
    for hub in hubs:
        hub.start()
    return hubs


def check(services: Services, tables: Tables, hubs: list[Hub]) -> None:
    """No version was given twice, and each topic has what its highest one says, unless an attempt without an answer came later."""
    for hub in hubs:
        hub.join()
    assert [hub.failure for hub in hubs] == [None] * HUBS
    answered = {version: what for hub in hubs for version, what in hub.answered.items()}
    assert len(answered) == sum(len(hub.answered) for hub in hubs)
    newest: dict[bytes, int] = {}
    for version, (topic, _) in answered.items():
        newest[topic] = max(version, newest.get(topic, 0))
    with caller(services) as own:
        store = HBaseRetained(own, tables)
        stored = {body.topic: body for body in store.fetch(1, sorted(newest))}
        assert {line.topic for line in store.load(1)} == set(stored)
    for topic, version in newest.items():
        body = answered[version][1]
        if body is None:
            assert topic not in stored
        else:
            assert (stored[topic].version, stored[topic].body) == (version, body)


def test_hubs_that_share_the_table_never_get_the_same_version(services: Services, tables: Tables) -> None:
    is_over = threading.Event()
    is_over.set()
    check(services, tables, written_by_all(services, tables, is_over))


def test_killed_server_loses_no_message_that_was_answered(
    services: Services, tables: Tables, other_tables: Tables, tools: DirectCaller
) -> None:
    """Kill -9 under four writers; each ends with a round that all see, so the last answer counts for every topic.

    Messages with an expiry are found again: the index came before the message, and both survive.
    """
    expiring = HBaseRetained(tools, other_tables)
    expiring.put([RetainedWrite(1, b"t/%d" % number, b"x", 100 + number) for number in range(30)])
    is_over = threading.Event()
    hubs = written_by_all(services, tables, is_over)
    threading.Event().wait(0.5)  # let the writers be in full flight
    services.kill("hbase")
    services.up()
    is_over.set()
    check(services, tables, hubs)
    assert sum(hub.repeats for hub in hubs) > 0
    assert until_done(lambda: expiring.expire(109, 100)) == [(1, b"t/%d" % number) for number in range(10)]
    assert expiring.expire(109, 100) == []
    assert expiring.usage(1).messages == 20


def test_large_messages_are_fetched_and_one_that_is_too_large_is_refused(tables: Tables, tools: DirectCaller) -> None:
    """HBase takes cells of 10 MiB, and a frame holds one of them at most."""
    store = HBaseRetained(tools, tables)
    store.put([RetainedWrite(1, b"t/%d" % number, b"x" * (3 << 20)) for number in range(6)])

    assert [len(body.body) for body in store.fetch(1, [b"t/%d" % number for number in range(6)])] == [3 << 20] * 6
    with pytest.raises(BackendError) as caught:
        store.put([RetainedWrite(1, b"t/9", b"x" * (11 << 20))])
    assert not caught.value.retryable
    assert store.usage(1).messages == 6
