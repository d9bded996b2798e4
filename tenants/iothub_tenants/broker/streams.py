"""Knows all streams, and keeps the stream sinks in the tenants' routers that send messages out.

Knows no Kafka and reads no accounts: it is given all streams whenever they have changed, and each broker when it is made.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from iothub.engine.router import Subscription
from iothub.engine.state import Session
from iothub_services.streams.port import Direction, Stream
from iothub_services.streams.sink import Sink
from iothub_tenants.broker.broker import TenantBroker


class SinkFactory(Protocol):
    """Makes the sinks of streams."""

    def sink(self, stream: Stream) -> Sink: ...

    def forget(self, sink: Sink) -> None: ...


class StreamRegistry:
    """On the reactor thread. Invariant: the router of every broker has exactly the sinks of its tenant's streams out."""

    def __init__(self, factory: SinkFactory) -> None:
        self._factory = factory
        self._streams: dict[int, Stream] = {}
        self._of_tenants: dict[int, list[Stream]] = {}
        self._sinks: dict[int, Sink] = {}  # by stream; a sink outlives its tenant's broker

    def __len__(self) -> int:
        return len(self._streams)

    def __iter__(self) -> Iterator[Stream]:
        return iter(list(self._streams.values()))

    @property
    def inbound(self) -> list[Stream]:
        return [stream for stream in self._streams.values() if stream.direction is Direction.IN]

    def get(self, stream_id: int) -> Stream | None:
        return self._streams.get(stream_id)

    def sinks(self) -> list[Sink]:
        return list(self._sinks.values())

    def sink_of(self, stream_id: int) -> Sink | None:
        return self._sinks.get(stream_id)

    def replace_streams(self, streams: Iterable[Stream], brokers: Iterable[TenantBroker]) -> None:
        """Take these as all streams there are, and update the sinks of these brokers."""
        self._streams = {stream.id: stream for stream in streams}
        self._of_tenants = {}
        for stream in self._streams.values():
            self._of_tenants.setdefault(stream.tenant_id, []).append(stream)
        gone = [sink for stream_id, sink in self._sinks.items() if stream_id not in self._streams]
        for broker in brokers:
            self.attach_sinks(broker)
        for sink in gone:
            del self._sinks[sink.stream.id]
            self._factory.forget(sink)

    def attach_sinks(self, broker: TenantBroker) -> None:
        """Give a broker's router the sinks of its tenant's streams, and remove others."""
        wanted = {
            each.id: each for each in self._of_tenants.get(broker.tenant_id, ()) if each.direction is Direction.OUT
        }
        broker.set_has_streams(broker.tenant_id in self._of_tenants)
        present = broker.sink_streams()
        for stream_id in present - set(wanted):
            broker.remove_sink(stream_id)
        for stream_id in sorted(set(wanted) - present):
            self._add_sink(broker, wanted[stream_id])

    def _add_sink(self, broker: TenantBroker, stream: Stream) -> None:
        session = Session(broker.plane, "", stream.subject, True)
        session.is_sink = True
        session.control = self._sinks.setdefault(stream.id, self._factory.sink(stream))
        subscription = Subscription(session, stream.filter.encode(), qos=2, retain_as_published=True)
        broker.add_sink(stream.id, session, subscription)
