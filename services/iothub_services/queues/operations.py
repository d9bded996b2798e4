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
from iothub_services.queues.bodies import body_of, body_size
from iothub_services.queues.conversions import append_of, inbound_of, is_appended_once
from iothub_services.queues.port import Append, Inbound


class AppendOperation(Waiting):
    """A publish and its body, which is made when somebody asks for it.

    `inbound`: the publisher's side of QoS 2. `message_id`: by which queues recognise it; empty: it never comes again.
    """

    __slots__ = ("_append", "inbound", "made_body", "message_id", "publish")

    def __init__(self, publish: StoredPublish, body: bytes | None, source: Source | None = None) -> None:
        self.set(publish, body, source)

    def set(self, publish: StoredPublish, body: bytes | None, source: Source | None) -> None:
        """The constructor, for one that is compiled: a call of `super()` costs more than all of this.

        `body`: if it is made already. Raises ValueError or struct.error: a field of the message does not fit.
        """
        self.op = None
        self.size_bytes = body_size(publish.message) if body is None else len(body)
        self.source = source
        self.until = 0.0
        self.publish = publish
        self.made_body = body
        self.inbound: Inbound | None = inbound_of(publish)
        self._append: Append | None = None
        self.message_id = b"" if is_appended_once(publish) else publish.message.message_id

    @property
    def body(self) -> bytes:
        """Return the body, always the same."""
        if self.made_body is None:
            self.made_body = body_of(self.publish.message)
        return self.made_body

    def as_append(self) -> Append:
        """Return it as the port has it, always the same."""
        if self._append is None:
            self._append = append_of(self.publish, self.body)
        return self._append
