"""Hubs that put retained messages into one table of HBase at the same time, and what must be there afterwards.

Knows no fault: the tests say what happens meanwhile.
"""

from __future__ import annotations

import threading

from iothub.base.errors import BackendError
from iothub_services.hbase.tables import Tables
from iothub_services.retained.hbase.store import HBaseRetained
from iothub_services.retained.port import RetainedWrite
from ops.services.services import Services
from tests.support.hbase.hbase_tables import caller, until_done

HUBS = 4
ROUNDS = 40


class RetainedHub(threading.Thread):
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


def written_by_all(services: Services, tables: Tables, is_over: threading.Event) -> list[RetainedHub]:
    """Begin; they go on at least until it is over."""
    hubs = [RetainedHub(services, tables, number, is_over) for number in range(HUBS)]
    for hub in hubs:
        hub.start()
    return hubs


def check(services: Services, tables: Tables, hubs: list[RetainedHub]) -> None:
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
