# cython: annotation_typing=False
"""A message for some queues on its way to disk, as the writing thread has it.

Theory: a driver of a server gets an `Append`. A driver that fulfils `TakesOperations` reads the plane's own objects, so that nothing is made
between a publish and its record.

Invariants: what is read of a publish in the thread does not change any more when it has been handed over. An operation has one `Append`, however
often it is asked for: a driver knows by its identity what comes again.
"""

from __future__ import annotations

from iothub.engine.outbox import StoredPublish
from iothub_services.group_thread import Source, Waiting
from iothub_services.queues.conversions import append_of, inbound_of, is_appended_once
from iothub_services.queues.port import Append, Inbound


class AppendOperation(Waiting):
    """A publish and its body. `inbound`: the publisher's side of QoS 2. `message_id`: by which queues recognise it; empty: it never comes again."""

    __slots__ = ("_append", "body", "inbound", "message_id", "publish")

    def __init__(self, publish: StoredPublish, body: bytes, source: Source | None = None) -> None:
        self.set(publish, body, source)

    def set(self, publish: StoredPublish, body: bytes, source: Source | None) -> None:
        """The constructor, for one that is compiled: a call of `super()` costs more than all of this."""
        self.op = None
        self.size_bytes = len(body)
        self.source = source
        self.until = 0.0
        self.publish = publish
        self.body = body
        self.inbound: Inbound | None = inbound_of(publish)
        self._append: Append | None = None
        self.message_id = b"" if is_appended_once(publish) else publish.message.message_id

    def as_append(self) -> Append:
        """Return it as the port has it, always the same."""
        if self._append is None:
            self._append = append_of(self.publish, self.body)
        return self._append
