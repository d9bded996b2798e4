# cython: annotation_typing=False
"""The connections whose publishes wait for the store: what keeps each one's order when some are given up.

Knows connections only by identity, and no store.

Theory: a client whose publish was given up is closed, and sends all that was not answered again, in order. What waits of a connection has one
`Source`. When the failure has been reported, a new source begins: for another connection, or for what the same one sends from then on. QoS 0 is
not repeated, has no order with the others, and its loss is not reported: it neither ends a source nor is dropped with one.

Invariant: once a thread has given up a publish, it stores nothing later of the same source. Otherwise receivers would get the later message
before the earlier ones, which the client sends again [MQTT-4.6.0-5].
"""

from __future__ import annotations

from iothub.engine.outbox import StoredPublish
from iothub.engine.state import Connection
from iothub_services.group_thread import Source


class Sources:
    """All for the reactor thread. Invariant: a connection is here as long as publishes of it wait, and no failure was reported to it."""

    def __init__(self) -> None:
        self._sources: dict[Connection, Source] = {}

    def __len__(self) -> int:
        return len(self._sources)

    def enter(self, publish: StoredPublish) -> Source | None:
        """Return the source of a publish that begins to wait; None: nobody repeats it, as the hub itself published it, or it has QoS 0."""
        connection = publish.connection
        if connection is None or publish.slot is None:
            return None
        source = self._sources.get(connection)
        if source is None:  # 5.0 gets an answer for each that was refused, and continues if that is certain
            source = self._sources[connection] = Source(may_skip=connection.version == 5)
        if publish.retain:
            source.may_skip = False  # its other half may be written all the same: then the connection is closed
        source.waiting += 1
        return source

    def leave(self, publish: StoredPublish, source: Source | None, is_failed: bool) -> None:
        """The publish was answered."""
        connection = publish.connection
        if source is None or connection is None:
            return
        source.waiting -= 1
        is_over = not source.waiting or (is_failed and source.is_cut)
        if is_over and self._sources.get(connection) is source:
            del self._sources[connection]
