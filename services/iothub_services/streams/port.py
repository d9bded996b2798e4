"""What a stream is, and what is asked of a driver: one that takes records for topics, one that gives records of topics.

Knows no Kafka client and no tenant's accounts. A stream is no queue: the hub does not remember what an application has read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, Protocol

from iothub.base.errors import BackendError
from iothub_services.auth.port import Rule

Headers = list[tuple[str, bytes]]


class Direction(Enum):
    """Seen from the hub."""

    OUT = "out"  # what devices publish goes to an application
    IN = "in"  # what an application writes goes to devices


@dataclass(frozen=True, slots=True)
class Stream:
    """One stream of a tenant. `id` is never used twice: a stream that was deleted and created again is another one.

    `rules`: of the subject `stream:NAME`, for `IN`.
    """

    id: int
    tenant_id: int
    tenant: str
    name: str
    direction: Direction
    filter: str
    partitions: int
    retention_ms: int
    rules: tuple[Rule, ...] = ()

    @property
    def subject(self) -> str:
        """Who it is where a device would be named: in access rules and in headers."""
        return f"stream:{self.name}"

    def topic(self, prefix: str) -> str:
        """Return the name of its topic in Kafka."""
        return topic_name(prefix, self.tenant, self.name, self.direction)

    def topics(self, prefix: str) -> list[str]:
        """Return the names of all its topics: that of refused records, too."""
        topic = self.topic(prefix)
        return [topic, refused_topic(topic)] if self.direction is Direction.IN else [topic]


def topic_name(prefix: str, tenant: str, name: str, direction: Direction) -> str:
    """Return the name of a stream's topic in Kafka."""
    return f"{prefix}.{tenant}.{name}{'.in' if direction is Direction.IN else ''}"


def refused_topic(topic: str) -> str:
    """Where records of a topic go that could not be published."""
    return f"{topic}.refused"


class Outgoing:
    """One record to be written. `owner` is the caller's; `is_sent`: the driver has it, and only its answer says whether it is written.

    `key`, `value`: None is Kafka's null.
    """

    __slots__ = ("headers", "is_given_up", "is_sent", "key", "owner", "size_bytes", "topic", "value")

    def __init__(
        self, owner: object, topic: str, key: bytes | None, value: bytes | None, headers: Headers, size_bytes: int
    ) -> None:
        self.owner = owner
        self.topic = topic
        self.key = key
        self.value = value
        self.headers = headers
        self.size_bytes = size_bytes
        self.is_sent = False
        self.is_given_up = False


Answer = tuple[Outgoing, BackendError | None]
OnAnswers = Callable[[Sequence[Answer]], None]


class StreamSender(Protocol):
    """Writes records, each once and in order per key, for as long as it takes. Answers come on the reactor thread, in batches.

    `trouble`: what was wrong last, "" while nothing is.
    """

    trouble: str

    def start(self, on_answers: OnAnswers) -> None: ...

    def send(self, record: Outgoing) -> None:
        """Take a record; never blocks. Its answer comes once: None when it is durable."""

    def give_up(self, record: Outgoing) -> bool:
        """True: it was not sent yet and never will be, and no answer comes. False: it is under way, and its answer comes."""

    def close(self, timeout_s: float) -> bool:
        """Write what was taken; False: not all was written in time. Blocks."""


class Incoming(NamedTuple):
    """One record as Kafka has it: key and value may be null."""

    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes]]


OnPage = Callable[[int, Sequence[Incoming]], None]
"""Stream id, and records in the order of their partitions; no more of this stream come before `done`."""


class StreamReceiver(Protocol):
    """Reads the topics of streams to devices, each from where it was committed. Pages come on the reactor thread.

    `trouble`: what was wrong last, "" while nothing is.
    """

    trouble: str

    def start(self, on_page: OnPage) -> None: ...

    def follow(self, streams: Sequence[Stream]) -> None:
        """Read these, and no others any more."""

    def done(self, stream_id: int, upto: Mapping[int, int]) -> None:
        """The page is dealt with: commit (partition -> next offset), then read on."""

    def close(self, timeout_s: float) -> bool:
        """End its thread. Blocks."""


class StreamWatch(Protocol):
    """Knows whether there is anything behind the drivers, also while nothing goes through them.

    `trouble`: what is wrong, "" while nothing is. `doubt`: why it does not know; then there is no trouble.
    """

    trouble: str
    doubt: str

    def watch(self, *, is_needed: bool) -> None:
        """Look from now on, or no longer. Never blocks."""

    def close(self) -> None:
        """Look no more; nothing is waited for."""
