"""A queue writer on stores in memory, whose threads run when a test says so; its plane writes down what it hears."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

from iothub.base.reasons import Drop
from iothub.engine.message import Message
from iothub.engine.outbox import QueueTarget, StoredPublish
from iothub.engine.state import Session, TenantPlane
from iothub.testing.clock import ManualClock
from iothub_services.group_thread import RetryPolicy
from iothub_services.queues.listeners import StoreListeners
from iothub_services.queues.memory import MemoryQueues
from iothub_services.queues.port import (
    QueueLimits,
)
from iothub_services.queues.writer import QueueWriter
from iothub_services.retained.memory import MemoryRetained

ID = bytes(15) + b"\x01"
TENANT = TenantPlane(7, "acme")


class FlakyQueues(MemoryQueues):
    """Fails whole groups as often as told."""

    failures: list[Exception] = []
    commits = 0

    @contextmanager
    def group(self) -> Iterator[None]:
        self.commits += 1
        if self.failures:
            raise self.failures.pop(0)
        yield


class FlakyRetained(MemoryRetained):
    failures: list[Exception] = []

    @contextmanager
    def group(self) -> Iterator[None]:
        if self.failures:
            raise self.failures.pop(0)
        yield


class FakeTurn:
    def __init__(self) -> None:
        self.is_open = False
        self.drops: list[tuple[Any, Drop, int]] = []

    def begin(self) -> None:
        self.is_open = True

    def drop(self, tenant: Any, session: Any, reason: Drop, count: int) -> None:
        self.drops.append((session, reason, count))


class Link:
    """As much of a connection as the writer looks at."""

    def __init__(self, version: int) -> None:
        self.version = version


class FakePlane:
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.turn = FakeTurn()
        self.calls: list[tuple[Any, ...]] = []
        self.batches = 0

    def end_batch(self) -> None:
        self.turn.is_open = False
        self.batches += 1

    def __getattr__(self, verb: str) -> Callable[..., None]:
        return lambda *args: self.calls.append((verb, *args))


class Harness:
    """A writer whose threads run when `run` says so."""

    def __init__(self, **settings: Any) -> None:
        self.queues = FlakyQueues()
        self.queues.failures = []
        self.retained = FlakyRetained()
        self.retained.failures = []
        self.clock = ManualClock()
        self.alarms: list[tuple[str, str]] = []
        self.damaged: list[tuple[str, str, str]] = []
        self.retained_news: list[tuple[Any, ...]] = []
        self.not_retained: list[tuple[Any, ...]] = []
        self.stale: list[object] = []
        self.lost: list[object] = []
        self.plane = FakePlane()
        self.writer = QueueWriter(
            self.queues,
            self.retained,
            lambda call: call(),
            self.clock,
            plane=lambda: cast("Any", self.plane),
            on_alarm=lambda name, text: self.alarms.append((name, text)),
            on_damage=lambda *damaged, **_: self.damaged.append(damaged),
            listeners=StoreListeners(
                on_retained=lambda *news: self.retained_news.append(news),
                on_not_retained=lambda *news: self.not_retained.append(news),
                on_stale=lambda session: self.stale.append(session),
                on_lost=lambda session: self.lost.append(session),
            ),
            **({"retry_policy": RetryPolicy()} | settings),
        )  # not started: the threads stay off

    def session(self, queue_id: int, limits: QueueLimits | None = None) -> Session:
        self.queues.create(7, queue_id, limits or QueueLimits())
        epoch = self.queues.claim(queue_id, b"w").epoch
        return Session(TENANT, f"reader-{queue_id}", "dev1", True, queue_id, epoch)

    def run(self, *threads: str) -> list[tuple[Any, ...]]:
        for name in threads or ("writes", "retains", "reads"):
            getattr(self.writer, f"_{name}").drain()
        calls, self.plane.calls = self.plane.calls, []
        return calls


def publish(*sessions: Any, retain: bool = False, payload: bytes = b"hi", qos: int = 1, name: bytes = b"a/b") -> Any:
    message = Message(name, payload, qos, retain, b"\x01\x01", 1.5, ID, None, "pub")
    return StoredPublish(TENANT, message, [QueueTarget(each, qos, retain, (5,)) for each in sessions], retain)
