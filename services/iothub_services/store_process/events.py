"""The event-log port over the store process: the driver of a worker, and the verbs that both sides know.

Knows events as bytes with a key. To a worker the log is shared: the other workers append to it.

Invariant: an event is appended once, whatever happened to the answer. The file has the offsets of each client's last append, of the same commit;
they are asked for before anything else is appended.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from iothub.base.clock import Clock
from iothub.base.errors import CorruptRecordError
from iothub.records.events import Event, Topic, encode_event, read_event
from iothub_services.events.port import DamagedEvent, LoggedEvent, Offsets, reached
from iothub_services.store_process.batches import Batches, Keep
from iothub_services.store_process.connection import OnNotices, StoreConnection
from iothub_services.store_process.frames import FrameError, data, many, nothing, number, pair, row, several, text
from iothub_services.store_process.ports import Port, Store
from iothub_services.store_process.requests import Requests
from iothub_services.store_process.verbs import Verb

PORT = "events"

_EVENT_BYTES = 512  # what an event takes in memory, a Will's payload apart
_TOPICS = {topic.value: topic for topic in Topic}


def _topic(value: object) -> Topic:
    topic = _TOPICS.get(text(value))
    if topic is None:
        raise FrameError("not a topic")
    return topic


_OFFSETS = several(number)

VERBS = {
    "append_rows": Verb((many(row(pair, _topic, text, data)),), many(number), is_write=True, is_kept=True),
    "trim": Verb((_OFFSETS, _topic), number, is_write=True),
    "skip_to": Verb((_OFFSETS,), nothing, is_write=True),
    "read_rows": Verb((number, number, _topic), many(row(pair, number, data, data))),
    "begin": Verb((_topic,), _OFFSETS),
    "end": Verb((_topic,), _OFFSETS),
    "after_loss": Verb((_OFFSETS,), _OFFSETS),
}


class KeptEvents(Store, Protocol):
    """What the store process needs of the file."""

    def append_rows(self, rows: Sequence[tuple[Topic, str, bytes]]) -> list[int]: ...

    def read_rows(self, after: int, count: int, topic: Topic) -> list[tuple[int, bytes, bytes]]: ...


def event_port(log: KeptEvents, clock: Clock, requests: Requests) -> Port:
    """Return the port of the store process."""
    return Port(PORT, VERBS, log, clock, requests=requests)


class RemoteEvents:
    """Fulfils `EventLog`. `append`, `trim` and `skip_to` belong to one thread, the others to any."""

    is_shared = True

    def __init__(
        self,
        path: Path,
        on_notices: OnNotices | None = None,
        *,
        connection: Callable[..., StoreConnection] = StoreConnection,
    ) -> None:
        self._writes = connection(path, PORT, VERBS, is_writer=True, on_notices=on_notices)
        self._reads = connection(path, PORT, VERBS)
        self._appends: Batches[Event, int] = Batches(
            self._writes, lambda event: _EVENT_BYTES + len(str(event.facts.get("payload", "")))
        )

    def close(self) -> None:
        self._writes.close()
        self._reads.close()

    def probe(self) -> None:
        """Commit something small. Raises BackendError: the store process is away, or its file takes no writes."""
        self._writes.probe()

    def append(self, events: list[Event]) -> list[LoggedEvent]:
        def ask(new: list[Event], keep: Keep[int]) -> list[int]:
            rows = [(event.type.topic.value, event.key, encode_event(event)) for event in new]
            return list(self._writes.write("append_rows", rows, keep=keep)) if new else []

        offsets = self._appends.do(events, ask)
        return [LoggedEvent(0, offset, event) for offset, event in zip(offsets, events, strict=True)]

    def read(self, after: Offsets, count: int, topic: Topic = Topic.SESSIONS) -> Sequence[LoggedEvent | DamagedEvent]:
        rows: list[tuple[int, bytes, bytes]] = self._reads.read("read_rows", reached(after, 0), count, topic.value)
        return [_entry(topic, *each) for each in rows]

    def begin(self, topic: Topic = Topic.SESSIONS) -> Offsets:
        offsets: Offsets = self._reads.read("begin", topic.value)
        return offsets

    def end(self, topic: Topic = Topic.SESSIONS) -> Offsets:
        offsets: Offsets = self._reads.read("end", topic.value)
        return offsets

    def trim(self, upto: Offsets, topic: Topic = Topic.SESSIONS) -> int:
        return int(self._writes.write("trim", upto, topic.value))

    def after_loss(self, seen: Offsets) -> Offsets:
        offsets: Offsets = self._reads.read("after_loss", seen)
        return offsets

    def skip_to(self, offsets: Offsets) -> None:
        self._writes.write("skip_to", offsets)


def _entry(topic: Topic, offset: int, key: bytes, value: bytes) -> LoggedEvent | DamagedEvent:
    """Read an event where it is used: whoever finds it damaged counts it."""
    try:
        return LoggedEvent(0, offset, read_event(value, key, 0, 1, topic))
    except CorruptRecordError as error:
        return DamagedEvent(0, offset, f"event log, offset {offset}: {error}")
