# cython: annotation_typing=False
"""The writer: fulfils the engine's `Store` on a queue driver and a retained driver, each with a thread of its own.

Knows record formats, order and back-pressure; knows no MQTT packet, no window and no rule of delivery: the plane gets answers.

Theory: one publish becomes at most one append (all its queues, one body, the publisher's QoS 2 identifier) and one retained write. They are
committed side by side; the plane hears `stored` when both are durable, in the order in which it asked. A commit that fails is tried again
every 250 ms, with an alarm, by the thread that holds the batch, so that order survives; after 30 s the plane hears `not_stored`. What a reader
moved is never given up: it is asked for again, and consumers go on meanwhile. A publish that was given up takes with it what its connection
sent behind it (`sources`). A queue that is lost fails no commit: the others get the message. Whatever the store refuses a session is looked into
by a read, whose answer says whether the queue is lost or another reader has claimed it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, cast

from iothub.base import log as logging
from iothub.base.clock import Clock
from iothub.base.errors import BackendError, NotFoundError
from iothub.base.reasons import Drop, Reason
from iothub.engine.outbox import PublishStore, StoredPublish
from iothub.engine.plane import Plane as MessagePlane
from iothub.engine.state import Session
from iothub_services.damaged import OnDamage, uncounted
from iothub_services.group_thread import (
    FOREVER_S,
    Bounds,
    CallInReactor,
    GroupThread,
    OperationQueue,
    RetryPolicy,
    Source,
)
from iothub_services.queues.bodies import body_of
from iothub_services.queues.conversions import retained_write
from iothub_services.queues.listeners import NOBODY, Alarm, Plane, StoreListeners
from iothub_services.queues.operations import AppendOperation
from iothub_services.queues.port import (
    Appended,
    Damaged,
    Move,
    MoveKind,
    QueueStore,
    Refused,
    StaleEpochError,
)
from iothub_services.queues.sources import Sources
from iothub_services.queues.threads import (
    READING,
    Call,
    LoadedPage,
    Read,
    ReadOp,
    Reads,
    RetainedCall,
    RetainedOp,
    RetainedPage,
    RetainedWrites,
)
from iothub_services.queues.writing import QueueWrites, WriteOp
from iothub_services.retained.port import RetainedStore, RetainedWrite

RETRY_S = 0.25
GIVE_UP_S = 30.0

_PATIENT = frozenset(("set_limits", "set_tenant_limits"))  # what was decided elsewhere: it holds, however late

_EXACTLY_ONCE = 2
_GONE = int(Refused.GONE)
_READ_FAILING = "queues-read_failing"  # the alarm's word, see `iothub.hub.stores.store_alarms`

log = logging.get(__name__)

Callback = Callable[[Any], None]
Errback = Callable[[Exception], None]


class _Pending(AppendOperation):
    """One publish on its way to disk: it waits for the queues' thread, for the other one as well if it is retained, or for that one only."""

    __slots__ = ("answer", "awaited", "behind", "error", "is_written", "writer")

    writer: QueueWriter
    awaited: int
    answer: Appended | tuple[int, ...]
    error: Exception | None
    is_written: bool
    behind: _Pending | None  # the next one

    def take_answer(self, answer: object) -> None:
        """That of the queues."""
        self.writer.append_done(self, answer)


def _pending(writer: QueueWriter, publish: StoredPublish, body: bytes | None, source: Source | None) -> _Pending:
    """Make one. A constructor is called in Python's way: this runs once for each message."""
    pending: _Pending = _Pending.__new__(_Pending)
    pending.set(publish, body, source)
    pending.writer = writer
    pending.awaited = 0
    pending.answer = ()
    pending.error = None
    pending.is_written = False
    pending.behind = None
    return pending


class QueueWriter(PublishStore):
    """Fulfils `iothub.engine.ports.Store`. All methods are for the reactor thread and return at once.

    Invariants: `_order` holds every publish without an answer, oldest first; the plane is answered from its left end only.

    `repeatable_deliveries`: QoS 2 deliveries of streams and Wills so far, whose message ids queues on servers keep for a day (docs/adr/0027).
    """

    def __init__(  # noqa: PLR0913 - the stores and the listeners, all but four by name
        self,
        queues: QueueStore,
        retained: RetainedStore,
        call_in_reactor: CallInReactor,
        clock: Clock,
        *,
        plane: Callable[[], Plane],
        bounds: Bounds | None = None,
        retry_policy: RetryPolicy | None = None,
        on_alarm: Alarm,
        on_damage: OnDamage = uncounted,
        listeners: StoreListeners = NOBODY,
        on_commit: Callable[[str, float], None] | None = None,
    ) -> None:
        """`plane`: the message plane, which is made above its store."""
        self._queues = queues
        self._retained = retained
        self._on_alarm = on_alarm
        self._on_damage = on_damage
        self._listeners = listeners
        self._plane = plane
        self._message_plane: MessagePlane | None = None  # the same, for calls without Python's way of passing arguments
        self.repeatable_deliveries = 0
        self._first: _Pending | None = None  # of the publishes without a report, in the order in which they came
        self._last: _Pending | None = None
        self._sources = Sources()
        self._looked_into: set[int] = set()  # queues that the store has refused somebody, and that are asked for
        self._unread = 0  # a queue that the store fails to read, 0: none
        self._call_in_reactor = call_in_reactor
        self._clock = clock
        bounds, retry_policy = bounds or Bounds(), retry_policy or RetryPolicy(RETRY_S, GIVE_UP_S)
        self._writes: GroupThread[WriteOp, object] = GroupThread(
            "queues",
            QueueWrites(queues),
            self._in_batch,
            clock,
            bounds=bounds,
            retry_policy=retry_policy,
            idle=getattr(queues, "idle", None),
            probe=getattr(queues, "probe", None),
            on_alarm=on_alarm,
            on_commit=on_commit,
        )
        self._to_write: OperationQueue = self._writes.queue
        self._give_up_s: float = retry_policy.give_up_s
        self._reads: GroupThread[ReadOp, object] = GroupThread(
            "queues-read", Reads(queues, retained), self._in_batch, clock, bounds=Bounds(commit=16)
        )
        self._retains: GroupThread[RetainedOp, object] = GroupThread(
            "retained",
            RetainedWrites(retained),
            self._in_batch,
            clock,
            bounds=bounds,
            retry_policy=retry_policy,
            probe=getattr(retained, "probe", None),
            on_alarm=on_alarm,
            on_commit=on_commit,
        )

    def start(self) -> None:
        for thread in (self._writes, self._reads, self._retains):
            thread.start()

    def close(self, timeout_s: float = 10.0) -> bool:
        """Write what was asked for, end the threads, close the stores. False: a thread still runs and the stores were left open."""
        threads = (self._reads, self._writes, self._retains)
        until = self._clock.monotonic() + timeout_s
        for thread in threads:
            thread.end()  # side by side
        is_idle = True
        for thread in threads:
            is_idle &= thread.close(max(until - self._clock.monotonic(), 0.0))
        if is_idle:
            self._queues.close()
            self._retained.close()
        return is_idle

    @property
    def is_full(self) -> bool:
        """Publishers of persistent messages should pause."""
        return self._writes.is_full or self._retains.is_full

    @property
    def is_failing(self) -> bool:
        """A store refuses writes just now."""
        return self._writes.is_failing or self._retains.is_failing

    @property
    def waiting(self) -> tuple[int, int]:
        """Operations and bytes that are not durable yet."""
        return (
            self._writes.waiting + self._retains.waiting,
            self._writes.waiting_bytes + self._retains.waiting_bytes,
        )

    # --- Store

    def append(self, publish: StoredPublish) -> None:
        if self._to_write.is_closing:
            return  # nothing is acknowledged any more
        source = self._sources.enter(publish)
        body = body_of(publish.message) if publish.retain else None
        pending = _pending(self, publish, body, source)
        if self._last is None:
            self._first = pending
        else:
            self._last.behind = pending
        self._last = pending
        if body is not None:
            pending.awaited += 1
            write = retained_write(publish, body)
            self._retains.submit(write, partial(self._retain_done, pending, write), len(body))
        if publish.targets or publish.inbound is not None or not publish.retain:
            pending.awaited += 1
            if publish.is_repeatable and publish.inbound is None:
                self.repeatable_deliveries += sum([each.qos == _EXACTLY_ONCE for each in publish.targets])
            self._to_write.put(pending, self._now() + self._give_up_s)

    def _now(self) -> float:
        """Return when the plane's batch began: one look at the clock for all that came together."""
        plane = self._message_plane
        return plane.turn.now if plane is not None and plane.turn.is_open else self._clock.monotonic()

    def read(self, session: Session, after: int, count: int, size_bytes: int) -> None:
        if self._reads.is_closing:
            return
        op = Read(session.queue_id, session.epoch, after, count, size_bytes)
        self._reads.submit(op, partial(self._page_done, session, after))

    def ack(self, session: Session, upto: int) -> None:
        self._move(MoveKind.ACK, session, upto, "head_moved")

    def release(self, session: Session, position: int) -> None:
        self._move(MoveKind.RELEASE, session, position, "released")

    def reserve(self, session: Session, upto: int) -> None:
        self._move(MoveKind.RESERVE, session, upto, "reserved")

    def finish_inbound(self, session: Session, packet_id: int) -> None:
        self._move(MoveKind.FINISH_INBOUND, session, packet_id, "inbound_finished")

    # --- the control plane

    def call(self, name: str, args: tuple[object, ...], callback: Callback, errback: Errback) -> None:
        """Call a verb of `QueueStore` in its thread: the reading one for what only reads, the writing one for others."""
        thread = cast("GroupThread[Any, object]", self._reads if name in READING else self._writes)
        patience_s = FOREVER_S if name in _PATIENT else None
        thread.submit(Call(name, args), partial(_answer, callback, errback), 0, patience_s)

    def load(self, op: Read | RetainedPage, callback: Callback, errback: Errback) -> None:
        """Read a page of a queue, decoded (a LoadedPage), or of the topics that have a Retained Message (a list)."""
        self._reads.submit(op, partial(_answer, callback, errback))

    def call_retained(self, name: str, args: tuple[object, ...], callback: Callback, errback: Errback) -> None:
        """The same for `RetainedStore`: put delete expire drop_tenant | load (as a list) fetch usage."""
        thread = cast("GroupThread[Any, object]", self._reads if name in READING else self._retains)
        thread.submit(RetainedCall(name, args), partial(_answer, callback, errback))

    # --- answers

    def _in_batch(self, deliver: Callable[[], None]) -> None:
        self._call_in_reactor(partial(self._deliver, deliver))

    def _deliver(self, deliver: Callable[[], None]) -> None:
        """All answers of one commit are one batch of the plane: each connection is written once."""
        plane = self._plane()
        was_open = plane.turn.is_open
        plane.turn.begin()
        try:
            deliver()
        finally:
            if not was_open:
                plane.end_batch()

    def append_done(self, pending: _Pending, answer: object) -> None:
        """What the queues' thread has answered."""
        if type(answer) is tuple:
            pending.answer = answer
            pending.is_written = True
        elif isinstance(answer, Appended):
            pending.answer = answer
            pending.is_written |= not answer.is_stale and not answer.is_duplicate
            if answer.is_stale:
                pending.error = BackendError("the publisher's session was taken over", retryable=False)
                if pending.publish.inbound is not None:
                    self._look_into(pending.publish.inbound)
        else:
            _failed(pending, answer)
        self._one_done(pending)

    def _retain_done(self, pending: _Pending, write: RetainedWrite, answer: object) -> None:
        if isinstance(answer, int):
            pending.is_written = True
            size = 0 if write.body is None else len(write.body)
            self._listeners.on_retained(write.tenant_id, write.topic, answer, write.expires_at_ms, size)
        else:
            _failed(pending, answer)
            self._listeners.on_not_retained(write.tenant_id, write.topic)
        self._one_done(pending)

    def _one_done(self, pending: _Pending) -> None:
        pending.awaited -= 1
        self.report_done()

    def report_done(self) -> None:
        """Report from the left end what has all its answers."""
        while self._first is not None:
            each = self._first
            if each.awaited:
                return
            self._first = each.behind
            if each.behind is None:
                self._last = None
            each.behind = None
            try:
                self._report(each)
            except BaseException:
                self._in_batch(self.report_done)  # those behind it are reported all the same
                raise
            finally:
                self._sources.leave(each.publish, each.source, each.error is not None)

    def _report(self, pending: _Pending) -> None:
        if pending.error is not None:
            is_final = not getattr(pending.error, "retryable", False)
            self._plane().not_stored(pending.publish, pending.is_written, is_final)
            return
        answer = pending.answer
        publish = pending.publish
        positions: tuple[int, ...]
        is_duplicate = False
        if type(answer) is tuple:
            positions = answer  # type: ignore[assignment]  # it is one of positions
        else:
            assert isinstance(answer, Appended)  # noqa: S101 - for the type
            positions, is_duplicate = answer.positions, answer.is_duplicate
            for quota in answer.hit:
                self._listeners.on_full(publish.tenant, quota)
            if answer.dropped:
                self._report_dropped(publish, answer.dropped)
        if self._message_plane is None:
            plane: Any = self._plane()
            if isinstance(plane, MessagePlane):
                self._message_plane = plane
            plane.stored(publish, positions, is_duplicate)
        else:
            self._message_plane.stored(publish, positions, is_duplicate)
        if _GONE in positions:
            for target, position in zip(publish.targets, positions, strict=True):
                if position == _GONE:
                    self._look_into(target.session)

    def _report_dropped(self, publish: StoredPublish, dropped: tuple[tuple[int, int], ...]) -> None:
        for target in publish.targets:
            count = sum(1 for queue_id, _ in dropped if queue_id == target.session.queue_id)
            if count:
                self._plane().turn.drop(publish.tenant, target.session, Drop.QUEUE_FULL, count)

    def _page_done(self, session: Session, after: int, answer: object) -> None:
        if not isinstance(answer, LoadedPage):
            self._plane().page(session, [], after, False)  # not now: it asks again, or the session was taken over
            self._reading_fails(session, answer)
            self._refused(session, answer)
            return
        if session.queue_id == self._unread:
            self._unread = 0
            self._on_alarm(_READ_FAILING, "")
        if answer.damaged:
            self._pass_over(session, answer.damaged)
        self._plane().page(session, answer.records, answer.upto, answer.is_short)

    def _pass_over(self, session: Session, damaged: list[Damaged]) -> None:
        """Name and count what is lost of a queue."""
        for position, reason in damaged:
            where = f"tenant {session.tenant.name}, client {session.client_id!r}, message {position} of its queue"
            self._on_damage("queues", where, reason)
        self._plane().turn.drop(session.tenant, session, Drop.STORE_FAILED, len(damaged))

    def _reading_fails(self, session: Session, answer: object) -> None:
        """Raise an alarm, if the store will not do it by itself, until the first queue of which this was said can be read, or is not there."""
        if isinstance(answer, StaleEpochError | NotFoundError) and session.queue_id == self._unread:
            self._unread = 0
            self._on_alarm(_READ_FAILING, "")
        elif isinstance(answer, BackendError) and not answer.retryable and not self._unread:
            self._unread = session.queue_id
            self._on_alarm(
                _READ_FAILING, f"queue {session.queue_id}: {answer}; its session gets nothing until this is over"
            )

    # --- the store has refused a session something

    def _look_into(self, session: Session) -> None:
        """Ask whether its queue is lost, or somebody else has claimed it."""
        queue_id = session.queue_id
        if not session.is_discarded and queue_id not in self._looked_into and not self._reads.is_closing:
            self._looked_into.add(queue_id)
            read = Read(queue_id, session.epoch, session.loaded, 1, 1)
            self._reads.submit(read, partial(self._looked, session, session.epoch))

    def _looked(self, session: Session, epoch: int, answer: object) -> None:
        self._looked_into.discard(session.queue_id)
        if epoch == session.epoch:  # else the client has come again, and its queue was claimed meanwhile
            self._refused(session, answer)

    def _refused(self, session: Session, answer: object) -> None:
        if isinstance(answer, NotFoundError):
            self._listeners.on_lost(session)
        elif isinstance(answer, StaleEpochError):
            self._listeners.on_stale(session)

    def _move(self, kind: MoveKind, session: Session, value: int, verb: str) -> None:
        self._submit_move(Move(kind, session.queue_id, session.epoch, value), session, verb)

    def _submit_move(self, move: Move, session: Session, verb: str) -> None:
        if self._writes.is_closing:
            return  # not durable, so nobody is notified
        self._writes.submit(move, partial(self._move_done, move, session, verb))

    def _move_done(self, move: Move, session: Session, verb: str, answer: object) -> None:
        if answer is True:
            getattr(self._plane(), verb)(session, move.value)
        elif isinstance(answer, BackendError) and answer.retryable:
            self._submit_move(move, session, verb)
        elif move.epoch != session.epoch:
            return  # of an earlier connection
        elif answer is False:
            self._look_into(session)
        elif (
            session.connection is not None
        ):  # what is not durable cannot be acknowledged: the client comes again, and its queue is claimed anew
            log.error(
                "queue refused an acknowledgement, closing the connection", queue=session.queue_id, cause=str(answer)
            )
            self._plane().close(session.connection, Reason.STORE_UNAVAILABLE)


def _failed(pending: _Pending, answer: object) -> None:
    pending.error = answer if isinstance(answer, Exception) else TypeError(type(answer).__name__)
    pending.is_written |= getattr(answer, "is_written", False)


def _answer(callback: Callback, errback: Errback, answer: object) -> None:
    if isinstance(answer, Exception):
        errback(answer)
    else:
        callback(answer)
