"""A persistent subscriber, a hub that dies at any moment with only what was durable, and a client that answers in any order or not at all.

Nothing acknowledged is lost, order is kept, QoS 2 is never doubled, a resend has its original identifier
[MQTT-4.4.0-1], Receive Maximum holds [MQTT-3.3.4-9].
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from iothub.engine.limits import PlaneLimits, TenantLimits
from iothub.testing.engine import Bench, Client, ManualStore, ack, packets, publish
from tests.support.night import by_day

_LIMITS = PlaneLimits(reserve_step=4, ack_batch=3, page_messages=4)
_TENANT = TenantLimits(backlog_messages=3)


class Subscriber:
    """An MQTT client that keeps its session state for ever: identifiers of QoS 2 messages received and not released."""

    def __init__(self) -> None:
        self.held: set[int] = set()
        self.delivered: list[bytes] = []
        self.identifiers: dict[bytes, int] = {}
        self.unanswered: list[bytes] = []  # acknowledgements not yet sent on this connection
        self.in_flight: set[int] = set()
        self.maximum = 0

    def connected(self, maximum: int) -> None:
        self.unanswered = []
        self.in_flight = set()
        self.maximum = maximum

    def read(self, data: bytes) -> None:
        for header, body in packets(data):
            if header >> 4 == 3:
                self._publish(header, body)
            elif header == 0x62:
                identifier = int.from_bytes(body[:2], "big")
                self.held.discard(identifier)
                self.unanswered.append(ack(0x70, identifier))

    def _publish(self, header: int, body: bytes) -> None:
        identifier = int.from_bytes(body[3:5], "big")
        payload = body[5:]
        if payload in self.identifiers:
            assert self.identifiers[payload] == identifier, "a resend has its original identifier"
            assert header & 8, "a resend is marked"
        self.identifiers[payload] = identifier
        assert identifier not in self.in_flight, "no resend on a live connection"
        self.in_flight.add(identifier)
        assert len(self.in_flight) <= self.maximum, "Receive Maximum"
        if header & 6 == 2:
            self.delivered.append(payload)
            self.unanswered.append(ack(0x40, identifier))
        else:
            if identifier not in self.held:
                self.held.add(identifier)
                self.delivered.append(payload)
            self.unanswered.append(ack(0x50, identifier))

    def answer(self, index: int) -> bytes:
        """Take one acknowledgement that is due."""
        packet = self.unanswered.pop(index % len(self.unanswered))
        if packet[0] != 0x50:
            self.in_flight.discard(int.from_bytes(packet[2:4], "big"))
        return packet


class OutboundCrashes(RuleBasedStateMachine):
    """The machine; `acknowledged` is what the publisher may rely on."""

    @initialize()
    def begin(self) -> None:
        self.store = ManualStore()
        self.subscriber = Subscriber()
        self.acknowledged: set[bytes] = set()
        self.sent = 0
        self.client: Client | None = None
        self.start()

    def start(self) -> None:
        """A hub starts: sessions and subscriptions come from the session state, nothing else is known."""
        self.bench = Bench(_LIMITS, self.store)
        self.bench.tenant.limits = _TENANT
        self.store.plane = self.bench.plane
        session = self.bench.plane.create_session(self.bench.tenant, "s", "s", is_persistent=True, queue_id=7)
        Client(self.bench, session, None, None).subscribe(b"q", 2)  # type: ignore[arg-type]
        self.publisher = self.bench.client("p", inbound_maximum=1000)
        self.client = None

    @rule(qos=st.sampled_from([1, 2]))
    def publish(self, qos: int) -> None:
        self.sent += 1
        self.collect(self.publisher.send(publish(b"q", b"%d:%05d" % (qos, self.sent), qos, self.sent)))

    def collect(self, data: bytes) -> None:
        """The publisher's acknowledgements; it releases at once."""
        for header, body in packets(data):
            number = int.from_bytes(body[:2], "big")
            if header in (0x40, 0x50):
                self.acknowledged.add(b"%d:%05d" % (1 if header == 0x40 else 2, number))
                if header == 0x50:
                    self.publisher.send(ack(0x62, number))

    @rule(count=st.integers(1, 8))
    def commit(self, count: int) -> None:
        self.store.commit(count)
        self.read()

    @rule()
    def tick(self) -> None:
        self.bench.pass_time(0.1)
        self.read()

    def read(self) -> None:
        self.collect(self.publisher.take())
        if self.client is not None:
            self.subscriber.read(self.client.take())

    @rule(maximum=st.sampled_from([1, 3, 20]))
    def connect(self, maximum: int) -> None:
        if self.client is not None:
            self.client.drop()
        self.store.commit()  # a claim is behind what was asked for before it
        self.collect(self.publisher.take())
        self.subscriber.connected(maximum)
        self.client = self.bench.client("s", queue_id=7, receive_maximum=maximum, is_kept=True)
        self.read()

    @rule()
    def settle(self) -> None:
        self.bench.settle()
        self.read()

    @rule(count=st.integers(2, 9), qos=st.sampled_from([1, 2, 2]))
    def flow(self, count: int, qos: int) -> None:
        """A stretch without trouble, so that trouble finds something to break."""
        for _ in range(count):
            self.publish(qos)
            self.store.commit()
            self.read()
            if self.client is not None and self.subscriber.unanswered:
                self.subscriber.read(self.client.send(self.subscriber.answer(0)))

    @rule()
    def disconnect(self) -> None:
        if self.client is not None:
            self.client.drop()
            self.client = None

    @rule(indexes=st.lists(st.integers(0, 19), min_size=1, max_size=6))
    def answer(self, indexes: list[int]) -> None:
        for index in indexes:
            if self.client is not None and self.subscriber.unanswered:
                self.subscriber.read(self.client.send(self.subscriber.answer(index)))

    @rule()
    def answer_all_but_pubrec(self) -> None:
        """PUBREC is withheld."""
        if self.client is None:
            return
        for index in range(len(self.subscriber.unanswered) - 1, -1, -1):
            if self.subscriber.unanswered[index][0] != 0x50:
                self.subscriber.read(self.client.send(self.subscriber.answer(index)))

    @rule(done=st.integers(0, 6))
    def crash(self, done: int) -> None:
        """Kill -9: some of what waits reached the disk, nobody heard of it."""
        self.store.crash(done)
        self.start()

    def teardown(self) -> None:
        if not hasattr(self, "store"):
            return
        self.connect(20)
        for _ in range(400):
            self.bench.settle()
            self.read()
            if not self.subscriber.unanswered and not self.store.waiting:
                break
            while self.subscriber.unanswered:
                self.answer([0])
        self.check()

    def check(self) -> None:
        delivered = self.subscriber.delivered
        assert self.acknowledged <= set(delivered), "nothing acknowledged is lost"
        exactly_once = [payload for payload in delivered if payload.startswith(b"2")]
        assert len(exactly_once) == len(set(exactly_once)), "QoS 2 is never doubled"
        assert exactly_once == sorted(exactly_once), "order"
        first = list(dict.fromkeys(payload for payload in delivered if payload.startswith(b"1")))
        assert first == sorted(first), "order"


TestOutboundCrashes = OutboundCrashes.TestCase
TestOutboundCrashes.settings = settings(max_examples=by_day(50, 500), stateful_step_count=40, deadline=None)
