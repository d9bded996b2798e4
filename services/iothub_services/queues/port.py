"""The virtual-queue port: what every driver must do.

Knows no session logic and no MQTT packets: a queue is a dense sequence of records with one reader and many writers.
All methods block; drivers run in a thread of their own.

Invariant: positions begin at 1 and are never issued again, not even after the queue has been emptied: the reader would take the new message
for one that it has acknowledged. The counter is stored; it cannot be derived from the records.

Invariant: the store itself makes the reader epochs, each claim one above the last, and refuses smaller ones. So no two readers have the same
epoch, and an earlier reader cannot remove the messages of a later one.

Invariant: a release (QoS 2, PUBREC seen) stays until the durable head passes it. Removed at PUBCOMP, a crash would send the PUBLISH again.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple, Protocol

from iothub.base.errors import BackendError


class Refused(IntEnum):
    """Why one delivery of an append got no position."""

    FULL = -1  # a limit of the queue; the policy could not make room
    GONE = -2  # no such queue, or its own state is damaged; an append never creates one


class Damaged(NamedTuple):
    """A record that cannot be read: it is passed over."""

    position: int
    why: str


class Overflow(IntEnum):
    """What a full queue does with the next message."""

    REJECT = 0
    DROP_OLDEST = 1
    DROP_QOS0_FIRST = 2  # stored QoS 0 goes first, then the newest is refused

    @property
    def word(self) -> str:
        """As the setting says it."""
        return self.name.lower().replace("_", "-")


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """Bounds of one queue; 0 means none."""

    messages: int = 100_000
    bytes: int = 64 << 20
    overflow: Overflow = Overflow.DROP_QOS0_FIRST


class Inbound(NamedTuple):
    """The publisher's side of an inbound QoS 2 message of a persistent session: recorded in the same transaction as the append."""

    queue_id: int  # the publisher's own queue: the "session's own row"
    epoch: int
    packet_id: int


class Delivery(NamedTuple):
    """One queue's share of an appended message."""

    queue_id: int
    qos: int  # min of publish and subscription
    flags: int = 0  # bit 0: RETAIN as it must be delivered; bit 1: it came by a shared subscription
    subscription_ids: tuple[int, ...] = ()


class Append(NamedTuple):
    """One message for some queues, all or nothing. `body` is an encoded message (`iothub.records.message`)."""

    message_id: bytes  # 16 bytes; a QoS 2 delivery of an id that the queue remembers is answered with its first position. Empty: it never comes again
    body: bytes
    expires_at_ms: int  # Unix time, 0: never
    deliveries: tuple[Delivery, ...]
    inbound: Inbound | None = None


class Appended(NamedTuple):
    """The answer to one Append, in the order of its deliveries: a position (> 0) or a `Refused`. There is one for every message that is stored.

    `is_duplicate`: the inbound Packet Identifier was already recorded; nothing was written, the positions are empty.
    `is_stale`: the publisher's session was claimed by somebody else (or is gone); nothing was written either.
    `dropped`: (queue_id, position) pairs that the overflow policy removed to make room.
    `hit`: the quota behind each FULL and each drop: `session_queued_messages`, `session_queued_bytes`, `queued_messages`, `queued_bytes`;
    two answers are the same whatever hits they report.
    """

    positions: tuple[int, ...]
    is_duplicate: bool = False
    dropped: tuple[tuple[int, int], ...] = ()
    is_stale: bool = False
    hit: tuple[str, ...] = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Appended) and self[:-1] == other[:-1]

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self[:-1])


class QueuedRecord(NamedTuple):
    """One record of a page, ascending by position."""

    position: int
    qos: int
    flags: int
    subscription_ids: tuple[int, ...]
    expires_at_ms: int
    body: bytes


@dataclass(frozen=True, slots=True)
class Page:
    """Records after a position; `upto` is how far the scan went (>= the last record), `is_short`: the tail was reached.

    `damaged`: what was passed over; the positions count for `upto`.
    """

    records: list[QueuedRecord]
    upto: int
    is_short: bool
    damaged: tuple[Damaged, ...] = ()


@dataclass(frozen=True, slots=True)
class Claim:
    """What a new reader of a queue learns: its epoch (previous + 1, made by the store) and where the queue stands.

    `head`: everything up to it is acknowledged. `tail`: the last position issued. `reserved`: up to it a position may have been sent before.
    `released`: positions above head whose PUBREC was seen. `inbound`: open inbound QoS 2 Packet Identifiers of the session.
    """

    epoch: int
    head: int
    tail: int
    reserved: int
    released: tuple[int, ...] = ()
    inbound: tuple[int, ...] = ()


class QueueStats(NamedTuple):
    """Where a queue stands: counts of what is stored above the head, and its fences."""

    queue_id: int
    tenant_id: int
    messages: int
    bytes: int
    head: int
    tail: int
    epoch: int
    limits: QueueLimits = QueueLimits()


class TenantUsage(NamedTuple):
    """What is stored in all queues of one tenant; a message counts once for each queue that it is in."""

    messages: int
    bytes: int


class JournalFigures(NamedTuple):
    """What whoever runs a journal in front of the embedded queues looks at; all 0: there is none.

    `messages`: that are in no table. `checkpoint_us`: how long it took to begin the newest segment, with what was moved into the tables and committed
    then; appends have waited for it. `reusable_bytes`: of the tables' file, what nothing is in.
    """

    size_bytes: int = 0
    messages: int = 0
    checkpoint_us: int = 0
    reusable_bytes: int = 0


class ExpiryMark(NamedTuple):
    """How far a look for expired records has come, in the order of their deadlines."""

    expires_at_ms: int
    queue_id: int
    position: int


EARLIEST = ExpiryMark(0, 0, 0)


class DueRecord(NamedTuple):
    """A record whose time has come."""

    tenant_id: int
    queue_id: int
    position: int


@dataclass(frozen=True, slots=True)
class Expired:
    """What one look for expired records found. `after`: where the next look begins; None: everything due was looked at.

    `spared`: they stay, because they may have been sent before, as far as the store knows.
    """

    removed: tuple[DueRecord, ...] = ()
    spared: tuple[DueRecord, ...] = ()
    after: ExpiryMark | None = None


class Purged(NamedTuple):
    """What a call of `purge` has dropped. `upto`: what to go on with, 0: everything up to there is gone. None may be dropped, and some be left."""

    messages: int
    upto: int = 0


class StaleEpochError(Exception):
    """A reader with a smaller epoch than the queue's tried to read, acknowledge, release or reserve."""


def worst_of(errors: Sequence[BackendError], *, is_written: bool) -> BackendError:
    """Return one error for several: one that does not pass by itself, so that a batch is taken apart."""
    worst = min(errors, key=lambda error: error.retryable)
    return BackendError(str(worst), retryable=worst.retryable, is_written=is_written)


class QueueStore(Protocol):
    """One contract suite (`iothub.testing.queue_contract`) holds every driver to this.

    Invariant: a queue whose own state is damaged is there for nobody: no verb but `drop` and `drop_tenant` finds it.
    """

    def create(self, tenant_id: int, queue_id: int, limits: QueueLimits, first_epoch: int = 1) -> None: ...

    def append(self, batch: list[Append]) -> list[Appended]:
        """Durable and ordered when it returns; one commit for the whole batch. A queue that is gone holds no other one up."""

    def claim(self, queue_id: int, owner: bytes) -> Claim:
        """Make the caller the only reader. Raises NotFoundError for an unknown queue."""

    def read(self, queue_id: int, epoch: int, after: int, count: int, size_bytes: int) -> Page: ...

    def apply(self, moves: list[Move]) -> list[bool]:
        """Do a batch of reader moves in one commit; False where the epoch was stale or the queue is gone."""

    def set_limits(self, changes: list[tuple[int, QueueLimits]]) -> None:
        """Bound queues, by their ids, all together. One that is gone is passed over."""

    def tails(self, queue_ids: list[int]) -> dict[int, int]:
        """Last position issued, for many queues in one query (the once-a-second poll of caught-up sessions)."""

    def existing(self, queue_ids: Sequence[int]) -> set[int]:
        """Return which of these queues are there. Any thread may call it.

        Invariant: it is asked where writes go. `tails`, `stats` and reads may be answered by a server that is behind: what that does not have, is
        not lost.
        """

    def stats(self, queue_id: int) -> QueueStats: ...

    def stats_of(self, queue_ids: Sequence[int]) -> dict[int, QueueStats]:
        """Return where those of these queues stand that are there, in one query or a few."""

    def list_queues(self, tenant_id: int) -> list[QueueStats]:
        """Return where each queue of a tenant stands, ascending; who is not listed is gone."""

    def purge(self, queue_id: int, upto: int = 0) -> Purged:
        """Drop the oldest records up to a position, as many as others may wait for; positions go on. `upto` 0: all that are stored now.

        Whoever wants them all calls again with the `upto` of the answer until that is 0; others write meanwhile, and what they store stays.
        """

    def drop(self, queue_id: int) -> int:
        """Remove the queue, damaged or not, and return how many records it had, as far as that is known. Idempotent."""

    def drop_tenant(self, tenant_id: int) -> int: ...

    def group(self) -> AbstractContextManager[None]:
        """Everything done inside is one commit; without it every verb is one."""

    def set_tenant_limits(self, tenant_id: int, messages: int, size_bytes: int) -> None:
        """Bound the sum over a tenant's queues (0: no bound); kept until the store is closed, not stored."""

    def tenant_usage(self, tenant_id: int) -> TenantUsage:
        """From memory, in any thread."""

    def expire(self, now_ms: int, count: int, after: ExpiryMark = EARLIEST) -> Expired:
        """Look at no more than `count` records whose time has come, behind a mark, and remove them; their positions stay empty.

        Invariant: positions up to `reserved` stay. Their delivery may have begun, and has to be completed with the same message.
        """

    def expire_unsent(self, now_ms: int, records: Sequence[DueRecord]) -> tuple[DueRecord, ...]:
        """Remove those of these records whose time has come, also below `reserved`; returns which.

        For the hub that reserved the positions and knows that it has not sent these: its own memory is finer than the store's.
        """

    def close(self) -> None: ...


class Place(NamedTuple):
    """Where the queue of a living session is, as the session's state says."""

    tenant_id: int
    queue_id: int
    epoch: int


class Rebuilt(NamedTuple):
    """What became of queues: rows made anew, messages that were saved for them, and how many queues of these have none."""

    queues: int = 0
    messages: int = 0
    empty: int = 0


class RebuildingStore(Protocol):
    """A driver that can lose queues and keep their messages."""

    needs_rebuild: bool

    def rebuild(self, places: Sequence[Place], now_us: int) -> Rebuilt: ...


class WritingTogether(Protocol):
    """A driver for which a batch of the writer's thread is one request."""

    def write(self, moves: list[Move], appends: list[Append]) -> tuple[list[bool], list[Appended]]:
        """Do what `apply` and `append` do, together."""


class MoveKind(IntEnum):
    """What a reader does to its own queue."""

    ACK = 1  # value: position; everything up to it is done
    RELEASE = 2  # value: position; PUBREC seen
    RESERVE = 3  # value: position; may have been sent up to here (a clean end lowers it to the exact position)
    FINISH_INBOUND = 4  # value: Packet Identifier; PUBREL seen
    RECORD_INBOUND = 5  # value: Packet Identifier; an inbound QoS 2 message that went to no queue


class Move(NamedTuple):
    """One reader move, fenced by its epoch."""

    kind: MoveKind
    queue_id: int
    epoch: int
    value: int
