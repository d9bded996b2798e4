"""Doubles around the message plane: transports, a control plane, a store that commits on request, and a plane wired to all of them.

Knows no sockets, no accounts and no drivers. The store keeps to the rules of the queue port, small enough to be read in one sitting; what it
has committed survives `crash`, what it has not is gone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from iothub.base.ids import MessageIds
from iothub.base.reasons import Drop, Reason
from iothub.engine.limits import ConnectionSettings, ListenerInfo, PlaneLimits
from iothub.engine.message import Delivery, Message, loaded
from iothub.engine.outbox import RETAIN_FLAG, SHARED_FLAG, StoredPublish
from iothub.engine.plane import Plane
from iothub.engine.router import Subscription
from iothub.engine.state import Connection, Session, TenantPlane
from iothub.testing.clock import ManualClock

CONNACK = b"\x20\x02\x00\x00"
CONNECT = b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x00\x00\x01a"


class LoopbackTransport:
    """Fulfils `Transport`: what is woken can be taken with `take`; `is_stuck` keeps the bytes where they are, as a full socket does."""

    def __init__(self) -> None:
        self.connection: Connection | None = None
        self.is_paused = False
        self.is_closed = False
        self.is_aborted = False
        self.is_drained = False
        self.is_stuck = False
        self.wakes = 0
        self.written = bytearray()

    def wake(self) -> None:
        self.wakes += 1
        self.flush()

    def flush(self) -> None:
        """Write everything, unless stuck."""
        if self.connection is not None and not self.is_stuck:
            self.written += self.connection.out
            self.connection.out.clear()

    def pause(self) -> None:
        self.is_paused = True

    def resume(self) -> None:
        self.is_paused = False

    def close(self, *, abort: bool = False, drains: bool = False) -> None:
        self.flush()
        self.is_closed = True
        self.is_aborted = abort
        self.is_drained = drains

    def take(self) -> bytes:
        """Return what was written since the last call."""
        taken = bytes(self.written)
        self.written.clear()
        return taken


class RecordingControl:
    """Fulfils `Control`: remembers every call; `on_packet` may answer."""

    def __init__(self) -> None:
        self.opens: list[Connection] = []
        self.packets: list[tuple[Connection, int, bytes]] = []
        self.closes: list[tuple[Connection, Reason]] = []
        self.on_packet: Callable[[Connection, int, bytes], None] | None = None
        self.on_closed: Callable[[Connection, Reason], None] | None = None

    def opened(self, connection: Connection) -> None:
        self.opens.append(connection)

    def packet(self, connection: Connection, header: int, body: bytes) -> None:
        self.packets.append((connection, header, body))
        if self.on_packet is not None:
            self.on_packet(connection, header, body)

    def closed(self, connection: Connection, reason: Reason) -> None:
        self.closes.append((connection, reason))
        if self.on_closed is not None:
            self.on_closed(connection, reason)


class RecordingObserver:
    """Fulfils `Observer`."""

    def __init__(self) -> None:
        self.drops: list[tuple[Drop, int]] = []
        self.limits: list[tuple[str, int]] = []

    def dropped(self, tenant: TenantPlane, session: Session | None, drop: Drop, count: int) -> None:
        self.drops.append((drop, count))

    def limited(self, tenant: TenantPlane, session: Session | None, limit: str, count: int) -> None:
        self.limits.append((limit, count))


class Permissive:
    """A Policy that lets everything pass."""

    version = 1
    publishes_everything = True
    receives_everything = True

    def may_publish(self, topic: bytes) -> bool:
        return True

    def may_receive(self, topic: bytes) -> bool:
        return True


class TopicPolicy:
    """A Policy of two sets of Topic Names; counts how often it is asked."""

    version = 1
    publishes_everything = False
    receives_everything = False

    def __init__(self, publish: set[bytes], receive: set[bytes]) -> None:
        self.publish = publish
        self.receive = receive
        self.questions = 0

    def may_publish(self, topic: bytes) -> bool:
        self.questions += 1
        return topic in self.publish

    def may_receive(self, topic: bytes) -> bool:
        self.questions += 1
        return topic in self.receive


@dataclass(frozen=True, slots=True)
class Claim:
    """Where a queue stands, as the queue port's Claim says it."""

    epoch: int
    head: int
    tail: int
    reserved: int
    released: tuple[int, ...] = ()
    inbound: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Record:
    """One decoded record of a page."""

    position: int
    qos: int
    flags: int
    subscription_ids: tuple[int, ...]
    message: Message

    def delivery(self) -> Delivery:
        """Return it as a page has it."""
        retain, is_shared = bool(self.flags & RETAIN_FLAG), bool(self.flags & SHARED_FLAG)
        return loaded(self.message, self.qos, retain, self.subscription_ids, self.position, is_shared)


@dataclass(slots=True)
class QueueRows:
    """What is on disk of one queue."""

    epoch: int = 0
    head: int = 0
    tail: int = 0
    reserved: int = 0
    records: dict[int, Record] = field(default_factory=dict)
    released: set[int] = field(default_factory=set)
    inbound: set[int] = field(default_factory=set)
    intents: dict[int, bytes] = field(default_factory=dict)  # of inbound messages that are not in all their queues yet
    seen: dict[bytes, int] = field(default_factory=dict)  # message id -> position, QoS 2


class ManualStore:
    """Fulfils the engine's `Store` over `rows`. Operations wait until `commit`, which does them in order and answers on the plane.

    `is_automatic`: `commit` follows each tick of the test's own making (`Bench.settle`). `fails`: appends are answered with `not_stored`.
    `lost`: queues that are not there any more, for appends.
    """

    def __init__(self) -> None:
        self.plane: Plane | None = None
        self.rows: dict[int, QueueRows] = {}
        self.retained: dict[bytes, Message] = {}
        self.waiting: list[tuple[Any, ...]] = []
        self.fails: bool | None = None  # None: works; else the value of is_written
        self.fails_for_good = False
        self.full: set[int] = set()
        self.lost: set[int] = set()
        self.appends = 0

    # --- the port

    def append(self, publish: StoredPublish) -> None:
        self.appends += 1
        self.waiting.append(("append", publish))

    def read(self, session: Session, after: int, count: int, size_bytes: int) -> None:
        self.waiting.append(("read", session, session.epoch, after, count))

    def ack(self, session: Session, upto: int) -> None:
        self.waiting.append(("ack", session, session.epoch, upto))

    def release(self, session: Session, position: int) -> None:
        self.waiting.append(("release", session, session.epoch, position))

    def reserve(self, session: Session, upto: int) -> None:
        self.waiting.append(("reserve", session, session.epoch, upto))

    def finish_inbound(self, session: Session, packet_id: int) -> None:
        self.waiting.append(("finish", session, session.epoch, packet_id))

    # --- the test's side

    def queue(self, queue_id: int) -> QueueRows:
        """Return a queue's rows; they are made at first use."""
        return self.rows.setdefault(queue_id, QueueRows())

    def claim(self, queue_id: int) -> Claim:
        """Become the only reader. What is still waiting was asked for earlier and is done first."""
        rows = self.queue(queue_id)
        rows.epoch += 1
        released = tuple(sorted(position for position in rows.released if position > rows.head))
        return Claim(rows.epoch, rows.head, rows.tail, rows.reserved, released, tuple(sorted(rows.inbound)))

    def commit(self, count: int = 1_000_000) -> int:
        """Do up to `count` waiting operations and answer them; return how many were done. What the answers ask for waits for the next call."""
        batch, self.waiting = self.waiting[:count], self.waiting[count:]
        answers = [getattr(self, f"_{operation[0]}")(*operation[1:]) for operation in batch]
        for answer in answers:
            if answer is not None:
                answer()
        return len(batch)

    def commit_all(self) -> None:
        """Commit until nothing waits."""
        while self.waiting:
            self.commit()

    def crash(self, done: int = 0) -> None:
        """The hub dies: the first `done` waiting operations reached the disk, nobody heard of it; the rest is gone."""
        for operation in self.waiting[:done]:
            getattr(self, f"_{operation[0]}")(*operation[1:])
        self.waiting = []

    # --- the operations; each returns its answer as a call

    def _append(self, publish: StoredPublish) -> Callable[[], None]:
        plane = self._plane
        if self.fails is not None:
            is_written = self.fails
            return lambda: plane().not_stored(publish, is_written, self.fails_for_good)
        inbound = publish.inbound
        message_id = publish.message.message_id
        rows = QueueRows() if inbound is None else self.queue(inbound.queue_id)
        if inbound is not None:
            if publish.packet_id in rows.inbound:
                return lambda: plane().stored(publish, (), True)
            message_id = rows.intents.pop(publish.packet_id, message_id)
            rows.inbound.add(publish.packet_id)
        if publish.retain:
            if publish.message.payload:
                self.retained[publish.message.topic] = publish.message
            else:
                self.retained.pop(publish.message.topic, None)
        positions = tuple(self._insert(publish, target, message_id) for target in publish.targets)
        return lambda: plane().stored(publish, positions, False)

    def _insert(self, publish: StoredPublish, target: Any, message_id: bytes) -> int:
        if target.session.queue_id in self.full:
            return -1
        if target.session.queue_id in self.lost:
            return -2
        rows = self.queue(target.session.queue_id)
        message = publish.message
        if target.qos == 2 and message_id in rows.seen:
            return rows.seen[message_id]
        rows.tail += 1
        copy = Message(
            message.topic, message.payload, message.qos, message.retain, message.properties, message.expires_at
        )
        rows.records[rows.tail] = Record(rows.tail, target.qos, target.flags(), target.identifiers, copy)
        if target.qos == 2:
            rows.seen[message_id] = rows.tail
        return rows.tail

    def _read(self, session: Session, epoch: int, after: int, count: int) -> Callable[[], None] | None:
        rows = self.queue(session.queue_id)
        if epoch != rows.epoch:
            return lambda: self._plane().page(session, [], after, False)
        found = [rows.records[position] for position in sorted(rows.records) if position > after]
        records = [record.delivery() for record in found[:count]]
        is_short = len(found) <= count
        upto = rows.tail if is_short else records[-1].position
        return lambda: self._plane().page(session, records, upto, is_short)

    def _ack(self, session: Session, epoch: int, upto: int) -> Callable[[], None] | None:
        rows = self.queue(session.queue_id)
        if epoch != rows.epoch:
            return None
        rows.head = max(rows.head, upto)
        rows.records = {position: record for position, record in rows.records.items() if position > upto}
        rows.released = {position for position in rows.released if position > upto}
        return lambda: self._plane().head_moved(session, upto)

    def _release(self, session: Session, epoch: int, position: int) -> Callable[[], None] | None:
        rows = self.queue(session.queue_id)
        if epoch != rows.epoch:
            return None
        rows.released.add(position)
        return lambda: self._plane().released(session, position)

    def _reserve(self, session: Session, epoch: int, upto: int) -> Callable[[], None] | None:
        rows = self.queue(session.queue_id)
        if epoch != rows.epoch:
            return None
        rows.reserved = upto
        return lambda: self._plane().reserved(session, upto)

    def _finish(self, session: Session, epoch: int, packet_id: int) -> Callable[[], None] | None:
        rows = self.queue(session.queue_id)
        if epoch != rows.epoch:
            return None
        rows.inbound.discard(packet_id)
        rows.intents.pop(packet_id, None)
        return lambda: self._plane().inbound_finished(session, packet_id)

    def _plane(self) -> Plane:
        if self.plane is None:
            raise LookupError("the store has no plane to answer on")
        return self.plane


class Client:
    """One MQTT client of a Bench, as raw bytes."""

    def __init__(self, bench: Bench, session: Session, transport: LoopbackTransport, connection: Connection) -> None:
        self.bench = bench
        self.session = session
        self.transport = transport
        self.connection = connection

    def send(self, data: bytes) -> bytes:
        """Send bytes as one batch; return what came back."""
        self.connection.feed(data)
        self.bench.plane.end_batch()
        return self.transport.take()

    def take(self) -> bytes:
        return self.transport.take()

    def subscribe(self, filter: bytes, qos: int = 0, **options: Any) -> Subscription:
        """Subscribe as the control plane would; `group=` for a shared subscription."""
        subscription = Subscription(self.session, filter, options.pop("group", None), qos, **options)
        self.bench.plane.subscribe(self.session, subscription)
        return subscription

    def drop(self) -> None:
        """The socket is gone."""
        self.connection.lost(Reason.NETWORK)


class Bench:
    """A plane with doubles all around it, and one tenant."""

    def __init__(self, limits: PlaneLimits | None = None, store: ManualStore | None = None) -> None:
        self.clock = ManualClock()
        self.control = RecordingControl()
        self.store = store or ManualStore()
        self.observer = RecordingObserver()
        self.plane = Plane(
            self.clock, self.control, self.store, limits or PlaneLimits(), self.observer, MessageIds(self.clock)
        )
        self.store.plane = self.plane
        self.tenant = TenantPlane(1, "acme")

    def accept(self) -> tuple[LoopbackTransport, Connection]:
        """Open a connection."""
        transport = LoopbackTransport()
        connection = self.plane.accept(transport, ListenerInfo(), "192.0.2.1:4711")
        if connection is None:
            raise ConnectionRefusedError("the plane refused the connection")
        transport.connection = connection
        return transport, connection

    def client(
        self,
        client_id: str,
        *,
        queue_id: int = 0,
        settings: ConnectionSettings | None = None,
        policy: Any = None,
        is_kept: bool = False,
        **options: Any,
    ) -> Client:
        """Connect; a `queue_id` makes the session persistent (claimed and restored). `options` are ConnectionSettings by name.

        `is_kept` leaves CONNACK and what follows it to be taken.
        """
        transport, connection = self.accept()
        connection.feed(CONNECT)
        self.plane.end_batch()
        session = self.tenant.sessions.get(client_id)
        if session is None:
            session = self.plane.create_session(
                self.tenant, client_id, client_id, is_persistent=queue_id > 0, queue_id=queue_id
            )
        self.plane.policy_changed(session, policy or Permissive())
        if session.is_persistent:
            self.plane.restore(session, self.store.claim(session.queue_id))
        self.plane.admit(connection, session, settings or ConnectionSettings(**options), CONNACK)
        client = Client(self, session, transport, connection)
        if not is_kept:
            client.take()
        return client

    def pass_time(self, seconds: float) -> None:
        """Let time pass, one tick per 100 ms."""
        for _ in range(round(seconds * 10)):
            self.clock.advance(0.1)
            self.plane.tick()

    def settle(self) -> None:
        """Commit and tick until the store has nothing to do."""
        self.plane.tick()
        while self.store.waiting:
            self.store.commit_all()
            self.plane.tick()


def publish(
    topic: bytes,
    payload: bytes = b"",
    qos: int = 0,
    packet_id: int = 1,
    *,
    retain: bool = False,
    dup: bool = False,
    properties: bytes | None = None,
) -> bytes:
    """Encode a PUBLISH; `properties` (without their length) make it one of 5.0."""
    body = len(topic).to_bytes(2, "big") + topic
    if qos:
        body += packet_id.to_bytes(2, "big")
    if properties is not None:
        body += _varint(len(properties)) + properties
    body += payload
    return bytes((0x30 | dup << 3 | qos << 1 | retain,)) + _varint(len(body)) + body


def ack(header: int, packet_id: int, code: int | None = None) -> bytes:
    """Encode PUBACK (0x40), PUBREC (0x50), PUBREL (0x62) or PUBCOMP (0x70)."""
    body = packet_id.to_bytes(2, "big") + (b"" if code is None else bytes((code,)))
    return bytes((header, len(body))) + body


def packets(data: bytes) -> list[tuple[int, bytes]]:
    """Split bytes into (first byte, body) of each whole packet."""
    found = []
    at = 0
    while at < len(data):
        header = data[at]
        length = shift = 0
        at += 1
        while True:
            byte = data[at]
            at += 1
            length |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        found.append((header, data[at : at + length]))
        at += length
    return found


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while True:
        number, byte = number >> 7, number & 0x7F
        encoded.append(byte | 0x80 if number else byte)
        if not number:
            return bytes(encoded)
