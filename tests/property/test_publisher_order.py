"""Order of one publisher across outages longer than the retry limit: what receivers get first is in the order in which it was sent."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from iothub.base.errors import BackendError
from iothub.engine.message import Message
from iothub.engine.outbox import QueueTarget, StoredPublish
from iothub.engine.state import AckSlot, Session, TenantPlane
from iothub.records.message import decode_message
from iothub.testing.clock import ManualClock
from iothub_services.group_thread import Bounds, RetryPolicy
from iothub_services.queues.memory import MemoryQueues
from iothub_services.queues.port import QueueLimits
from iothub_services.queues.writer import QueueWriter
from iothub_services.retained.memory import MemoryRetained
from tests.support.night import by_day

TENANT = TenantPlane(7, "acme")
QUEUE = 1
GIVE_UP_S = 30.0


class Attempt(NamedTuple):
    """One commit: how long it takes, what becomes of it, what is sent meanwhile, and whether the reactor gets a turn in it."""

    lasts_s: int
    outcome: str
    sent: int
    has_turn: bool


ATTEMPTS = st.lists(
    st.builds(
        Attempt,
        st.integers(0, 16),
        st.sampled_from(("done", "lost", "lost", "landed", "damaged")),
        st.integers(0, 3),
        st.booleans(),
    ),
    max_size=14,
)


class Link:
    """As much of a connection as the writer looks at."""

    def __init__(self, version: int) -> None:
        self.version = version


class Queues(MemoryQueues):
    """Each group is one attempt; `on_attempt` says what becomes of it."""

    on_attempt: Callable[[], str]

    @contextmanager
    def group(self) -> Iterator[None]:
        outcome = self.on_attempt()
        if outcome in ("lost", "damaged"):
            raise BackendError("no answer", retryable=outcome == "lost")
        yield
        if outcome == "landed":  # it is durable, and nobody knows
            raise BackendError("no answer", retryable=True, is_written=True)


class World:
    """A client that sends numbers in order, a writer whose store fails as told, and the plane between them."""

    def __init__(self, attempts: list[Attempt], version: int, commit: int) -> None:
        self.attempts = attempts
        self.clock = ManualClock()
        self.turns: list[Callable[[], None]] = []
        self.queues = Queues()
        self.queues.on_attempt = self.attempt
        self.queues.create(7, QUEUE, QueueLimits())
        self.reader = Session(TENANT, "reader", "dev1", True, QUEUE, 0)
        self.writer = QueueWriter(
            self.queues,
            MemoryRetained(),
            self.turns.append,
            self.clock,
            plane=lambda: self,  # type: ignore[arg-type, return-value]
            bounds=Bounds(commit=commit),
            retry_policy=RetryPolicy(1e-9, GIVE_UP_S),
            on_alarm=lambda _, __: None,
        )
        self.turn: Any = self
        self.is_open = True
        self.link: Any = Link(version)
        self.sent = 0
        self.unanswered: list[int] = []
        self.refused: set[int] = set()

    # --- the client

    def send(self, count: int) -> None:
        for _ in range(count):
            self.sent += 1
            self.unanswered.append(self.sent)
            self.submit(self.sent)

    def submit(self, number: int) -> None:
        message = Message(b"a", b"%d" % number, 1, False, b"", 0.0, bytes(16), None, "pub")
        publish = StoredPublish(TENANT, message, [QueueTarget(self.reader, 1, False, ())], False)
        publish.connection = self.link
        publish.slot = AckSlot(number, 1)
        self.writer.append(publish)

    # --- the store

    def attempt(self) -> str:
        attempt = self.attempts.pop(0) if self.attempts else Attempt(0, "done", 0, True)
        self.clock.advance(attempt.lasts_s)
        self.send(attempt.sent)
        if attempt.has_turn:
            self.react()
        return attempt.outcome

    # --- the plane

    def begin(self) -> None:
        """The plane's batch is open all the time."""

    def react(self) -> None:
        while self.turns:
            self.turns.pop(0)()

    def stored(self, publish: StoredPublish, positions: tuple[int, ...], is_duplicate: bool) -> None:
        if publish.connection is self.link:
            self.unanswered.remove(int(publish.message.payload))

    def not_stored(self, publish: StoredPublish, is_written: bool, is_final: bool = False) -> None:
        link: Any = publish.connection
        if link is not self.link:
            return
        if link.version == 5 and not is_written:  # PUBACK with a Reason Code: it is not sent again
            self.unanswered.remove(int(publish.message.payload))
            self.refused.add(int(publish.message.payload))
        else:
            self.link = Link(link.version)
            for number in self.unanswered:
                self.submit(number)

    # --- the end

    def run(self) -> None:
        self.send(2)
        while self.unanswered or self.attempts:
            self.writer._writes.drain()
            self.react()
            if self.attempts and not self.unanswered:
                self.send(1)

    def received(self) -> list[int]:
        """Return the numbers as the queue has them."""
        page = self.queues.read(QUEUE, self.queues.claim(QUEUE, b"").epoch, 0, 10_000, 1 << 30)
        return [int(decode_message(record.body).payload) for record in page.records]


@settings(max_examples=by_day(75, 150), deadline=None)
@given(ATTEMPTS, st.sampled_from((4, 5)), st.integers(1, 4))
def test_messages_of_a_publisher_are_first_received_in_their_order(
    attempts: list[Attempt], version: int, commit: int
) -> None:
    """Given up, closed, sent again: no later message is stored before an earlier one, and none that was acknowledged is missing.

    [MQTT-4.6.0-5] [MQTT-4.6.0-6]
    """
    world = World(attempts, version, commit)

    world.run()

    first = list(dict.fromkeys(world.received()))
    assert [number for number in first if number not in world.refused] == [
        number for number in range(1, world.sent + 1) if number not in world.refused
    ]
    assert first == sorted(first)
    assert len(world.writer._sources) == 0
