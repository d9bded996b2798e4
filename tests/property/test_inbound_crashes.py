"""A persistent publisher of QoS 2 and a hub that dies at any moment with only what was durable.

Inbound QoS 2: exactly once into a persistent session's queue, PUBREC after the commit, PUBCOMP after the durable removal;
a transient subscriber gets nothing twice while the hub lives. All queues are full now and then: what was refused for that costs no other
message that comes under its identifier.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from iothub.engine.outbox import StoredPublish
from iothub.testing.engine import Bench, Client, ManualStore, ack, packets, publish
from tests.support.night import by_day


class FullStore(ManualStore):
    """Knows what has come while no queue had room."""

    def __init__(self) -> None:
        super().__init__()
        self.refused: set[bytes] = set()

    def append(self, publish: StoredPublish) -> None:
        super().append(publish)
        if self.full:
            self.refused.add(publish.message.payload)


class Publisher:
    """An MQTT client that keeps its session state for ever: what it has to send again after each reconnect [MQTT-4.4.0-1]."""

    def __init__(self, version: int) -> None:
        self.version = version
        self.unreceived: dict[int, bytes] = {}  # Packet Identifier -> payload, PUBREC is awaited
        self.unreleased: list[int] = []  # PUBREC seen, PUBCOMP is awaited
        self.promised: set[bytes] = set()
        self.number = 0

    def identifier(self) -> int:
        """Identifiers are used again as soon as they may be."""
        return next(
            number for number in range(1, 100) if number not in self.unreceived and number not in self.unreleased
        )

    def read(self, data: bytes) -> bytes:
        """Take answers; return what must be sent now."""
        reply = b""
        for header, body in packets(data):
            identifier = int.from_bytes(body[:2], "big")
            if header >> 4 == 3:
                topic = int.from_bytes(body[:2], "big")
                received = body[2 + topic : 4 + topic]
                reply += ack(0x50, int.from_bytes(received, "big"))
            elif header == 0x62:
                reply += ack(0x70, identifier)
            elif header == 0x50 and len(body) > 2 and body[2] >= 0x80:
                self.unreceived.pop(identifier, None)  # refused: the identifier is free
            elif header == 0x50 and identifier in self.unreceived:
                self.promised.add(self.unreceived.pop(identifier))
                self.unreleased.append(identifier)
                reply += ack(0x62, identifier)
            elif header == 0x70:
                assert identifier in self.unreleased, "PUBCOMP answers a PUBREL"
                self.unreleased.remove(identifier)
        return reply

    def publish(self, identifier: int, *, dup: bool = False) -> bytes:
        properties = b"" if self.version == 5 else None
        return publish(b"q", self.unreceived[identifier], 2, identifier, dup=dup, properties=properties)

    def again(self) -> bytes:
        """What a reconnect repeats."""
        first = b"".join(self.publish(number, dup=True) for number in self.unreceived)
        return first + b"".join(ack(0x62, number) for number in self.unreleased)


class InboundCrashes(RuleBasedStateMachine):
    """The machine."""

    @initialize(version=st.sampled_from([4, 5]))
    def begin(self, version: int) -> None:
        self.store = FullStore()
        self.publisher = Publisher(version)
        self.start()

    def start(self) -> None:
        self.bench = Bench(None, self.store)
        self.store.plane = self.bench.plane
        for client_id, queue_id in (("p", 9), ("s", 7), ("b", 8)):
            self.bench.plane.create_session(
                self.bench.tenant, client_id, client_id, is_persistent=True, queue_id=queue_id
            )
        for client_id in "psb":
            Client(self.bench, self.bench.tenant.sessions[client_id], None, None).subscribe(b"q", 2)  # type: ignore[arg-type]
        self.transient = self.bench.client("t", receive_maximum=1000)
        self.transient.subscribe(b"q", 2)
        self.seen: list[bytes] = []  # by the transient subscriber, in this life of the hub
        self.client: Client | None = None

    def exchange(self, data: bytes = b"") -> None:
        """Send and answer until nothing comes at once."""
        if self.client is None:
            return
        data = self.publisher.read(self.client.take()) + data
        while data and not self.client.connection.is_closing:
            data = self.publisher.read(self.client.send(data))
        if self.client.connection.is_closing:
            self.client = None
        self.look()

    def look(self) -> None:
        for header, body in packets(self.transient.take()):
            if header >> 4 == 3:
                self.seen.append(body[5:])
        assert len(self.seen) == len(set(self.seen)), "nothing twice while the hub lives"

    @rule(count=st.integers(1, 4))
    def publish(self, count: int) -> None:
        publisher = self.publisher
        for _ in range(count):
            if self.client is None or len(publisher.unreceived) + len(publisher.unreleased) > 8:
                return
            publisher.number += 1
            identifier = publisher.identifier()
            publisher.unreceived[identifier] = b"%05d" % publisher.number
            self.exchange(publisher.publish(identifier))

    @rule(count=st.integers(1, 8))
    def commit(self, count: int) -> None:
        self.store.commit(count)
        self.exchange()

    @rule(count=st.integers(1, 8))
    def fail(self, count: int) -> None:
        """The store refuses appends for a moment, and has written none of them for certain; 3.x cannot be told so."""
        self.store.fails = False
        self.store.commit(count)
        self.store.fails = None
        self.exchange()

    @rule(dies=st.booleans())
    def refuse(self, dies: bool) -> None:
        """No queue has room for one message, and perhaps the hub dies before its identifier is forgotten; 3.x cannot be told so."""
        if self.publisher.version != 5:
            return
        self.commit(1_000)
        self.store.full = {7, 8, 9}
        self.publish(1)
        self.commit(1)
        self.store.full = set()
        if dies:
            self.crash(0)

    @rule()
    def connect(self) -> None:
        if self.client is not None:
            self.client.drop()
        self.store.commit()
        self.client = self.bench.client("p", queue_id=9, version=self.publisher.version)
        self.exchange(self.publisher.again())

    @rule()
    def reconnect_at_once(self) -> None:
        """The claim overtakes nothing, but the answers come only after it."""
        if self.client is not None:
            self.client.drop()
        self.client = self.bench.client("p", queue_id=9, version=self.publisher.version)
        self.exchange(self.publisher.again())

    @rule(done=st.integers(0, 6))
    def crash(self, done: int) -> None:
        self.store.crash(done)
        self.start()

    def end(self) -> None:
        """Everything that can be done is done."""
        for _ in range(50):
            self.bench.settle()
            self.exchange()
            if not self.store.waiting and not self.publisher.unreceived and not self.publisher.unreleased:
                break
        assert not self.publisher.unreceived
        assert not self.publisher.unreleased

    def teardown(self) -> None:
        if not hasattr(self, "store"):
            return
        self.connect()
        self.end()
        self.publish(4)  # under identifiers that are free again
        self.end()
        for queue_id in (7, 8):
            stored = [record.message.payload for record in self.store.queue(queue_id).records.values()]
            assert len(stored) == len(set(stored)), "exactly once"
            assert self.publisher.promised - self.store.refused <= set(stored), "nothing promised is lost"
        assert not self.store.queue(9).inbound, "every identifier is free in the end"
        assert not self.store.queue(9).intents


TestInboundCrashes = InboundCrashes.TestCase
TestInboundCrashes.settings = settings(max_examples=by_day(60, 600), stateful_step_count=40, deadline=None)
