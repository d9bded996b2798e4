"""Whom the queue writer notifies, and of what: the plane, and the listeners of limits, retained messages, take-overs and alarms.

Knows no store and no thread, only protocols.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from iothub.base.reasons import Drop, Reason
from iothub.engine.message import Delivery
from iothub.engine.outbox import StoredPublish
from iothub.engine.state import Session

Alarm = Callable[[str, str], None]


class OnFull(Protocol):
    """Called for each message that a queue refused or dropped for a limit, by the quota's name."""

    def __call__(self, tenant: Any, quota: str) -> None: ...


class OnRetained(Protocol):
    """Called for each retained write that is durable, before its publisher is answered; `size` 0: deleted."""

    def __call__(self, tenant_id: int, topic: bytes, version: int, expires_at_ms: int, size: int) -> None: ...


class OnNotRetained(Protocol):
    """Called for each new Retained Message that was given up: it is not in the store, unless its commit was uncertain."""

    def __call__(self, tenant_id: int, topic: bytes) -> None: ...


class OnStale(Protocol):
    """Called for each session whose epoch the store refuses: another reader has claimed its queue."""

    def __call__(self, session: Any) -> None: ...


class OnLost(Protocol):
    """Called for each session whose queue is not there, or damaged."""

    def __call__(self, session: Any) -> None: ...


def _nobody(*_: object, **__: object) -> None:
    """Nobody else wants to hear of it."""


@dataclass(frozen=True, slots=True)
class StoreListeners:
    """Who else hears of what the stores have answered, on the reactor thread."""

    on_retained: OnRetained = _nobody
    on_not_retained: OnNotRetained = _nobody
    on_full: OnFull = _nobody
    on_stale: OnStale = _nobody
    on_lost: OnLost = _nobody


NOBODY = StoreListeners()


class Turn(Protocol):
    """The plane's running batch."""

    is_open: bool

    def begin(self) -> None: ...

    def drop(self, tenant: Any, session: Any, reason: Drop, count: int) -> None: ...


class Plane(Protocol):
    """What answers go to: `iothub.engine.plane.Plane`."""

    turn: Turn

    def close(self, connection: Any, reason: Reason) -> None: ...

    def end_batch(self) -> None: ...

    def stored(self, publish: StoredPublish, positions: tuple[int, ...], is_duplicate: bool = False) -> None: ...

    def not_stored(self, publish: StoredPublish, is_written: bool, is_final: bool = False) -> None: ...

    def page(self, session: Session, records: list[Delivery], upto: int, is_short: bool) -> None: ...

    def head_moved(self, session: Session, upto: int) -> None: ...

    def released(self, session: Session, position: int) -> None: ...

    def reserved(self, session: Session, upto: int) -> None: ...

    def inbound_finished(self, session: Session, packet_id: int) -> None: ...
