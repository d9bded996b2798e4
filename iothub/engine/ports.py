"""What the message plane asks of others: Protocols that higher packages fulfil; and the one that connections ask of the plane.

Knows no sockets, no SQL and no asynchronous code: every call here returns at once, and answers come back as calls on the Plane,
always on the reactor thread and never from inside the call that asked.
"""

from __future__ import annotations

from typing import Any, Protocol

from iothub.base.reasons import Drop, Reason

ABSENT, CONGESTED, READY = range(3)
"""Of the members of a shared group at another hub."""


class Transport(Protocol):
    """One client's byte stream, filters (TLS, WebSocket, PROXY) included. Fulfilled by the poller's sockets and by Twisted transports.

    The plane appends to `connection.out` and calls `wake()` once per turn; the transport takes bytes from `connection.out` when it can.
    """

    def wake(self) -> None:
        """`connection.out` has bytes: write at the end of this turn."""

    def pause(self) -> None:
        """Stop reading (back-pressure). Idempotent."""

    def resume(self) -> None:
        """Read again. Idempotent."""

    def close(self, *, abort: bool = False, drains: bool = False) -> None:
        """Write what is in `connection.out` and close; `abort` drops it and resets. `connection.lost(reason)` follows once, later.

        `drains`: the peer must be able to read what was written last, so only our side is closed and what still arrives is thrown away, for a
        moment. Without that a peer that is just sending gets a reset, and its kernel drops what it has not read yet.
        """


class ByteSink(Protocol):
    """Who takes what arrives on a connection. Fulfilled by `iothub.engine.plane`."""

    def feed(self, connection: Any, data: bytes) -> None:
        """Decrypted, unframed MQTT bytes."""

    def lost(self, connection: Any, reason: Reason) -> None:
        """The socket is gone; exactly once."""


class Control(Protocol):
    """The control plane: everything that is not PUBLISH, an acknowledgement or PINGREQ. Fulfilled by `iothub_tenants.control.control`."""

    def opened(self, connection: Any) -> None:
        """A connection was accepted; nothing is known of it but listener and address."""

    def packet(self, connection: Any, header: int, body: bytes) -> None:
        """Take one complete Control Packet (CONNECT, SUBSCRIBE, UNSUBSCRIBE, DISCONNECT, AUTH): first byte and body without the length.

        Parsing of this connection stands still until `plane.resume(connection)` (or `plane.admit`, `plane.close`).
        """

    def closed(self, connection: Any, reason: Reason) -> None:
        """The connection has ended; exactly once for each `opened`. The session, if any, is detached already."""


class Policy(Protocol):
    """What one device with one Client Identifier may do. Immutable: a change makes a new Policy, put on the session by the control plane."""

    version: int
    publishes_everything: bool  # fast path: every Topic Name that does not begin with "$" may be published
    receives_everything: bool  # the same for what is delivered

    def may_publish(self, topic: bytes) -> bool: ...

    def may_receive(self, topic: bytes) -> bool: ...


class Interest(Protocol):
    """Gets notified of the subscriptions through which clients here may get a message that no queue has: `TenantPlane.interest`."""

    def replace(self, before: Any, after: Any) -> None:
        """One Subscription takes the place of another with the same session, group and Topic Filter. None: there was none, or is none any more.

        Those of a transient session count while they are there, those of a persistent one only while it has a connection.
        """


class Routing(Protocol):
    """Subscriptions by which some hubs do not route yet: `TenantPlane.routing`."""

    def routed(self, message: Any, target: Any) -> Any:
        """Return the part of a Target by which the hub that has sent this message routes; None: nothing."""


class Changing(Protocol):
    """Subscriptions of persistent sessions that some hubs may not know as they are now: `TenantPlane.changing`."""

    def as_of(self, message: Any, target: Any) -> Any:
        """Return the Target as the hub knew it that has routed this message, so that it comes through the queue or directly; None: nothing."""


class Peer(Protocol):
    """Another hub: `control` of a session that `is_peer`. Fulfilled by `iothub.peers.routed_peer`."""

    is_full: bool  # publishers of QoS 1 and 2 wait; what has QoS 0 it drops by itself

    def send(self, tenant: Any, message: Any) -> None:
        """Take one message, or drop it by name. Who takes the first one of a batch puts itself into `Turn.routed`."""

    def flush(self) -> None:
        """Give what was taken to the link: the batch ends."""

    def readiness(self, subscription: Any, message: Any) -> int:
        """Say whether a member there takes a message of a shared group: ABSENT, CONGESTED or READY. `subscription`: the hub's in the group."""

    def send_to_group(self, tenant: Any, message: Any, group: Any) -> None:
        """Send one message for one member of a group there, and see to it that somebody gets it if that member does not."""


class Elsewhere(Protocol):
    """Notifies other hubs of what the queues of their clients' sessions have got: `Turn.elsewhere`. Fulfilled by `iothub.peers.queued`."""

    def queued(self, tenant: Any, message: Any, receivers: list[tuple[Any, int]]) -> None:
        """A commit gave sessions whose clients are at other hubs a position: each a `QueueTarget` with it."""


class GroupArrival(Protocol):
    """A message that another hub has sent for one member of a shared group here: it stands in a `Delivery` for the Group.

    Exactly one of the calls is made, unless the hub that sent it hears of it otherwise. Fulfilled by `iothub.peers.groups`.
    """

    name: bytes
    filter: bytes

    def done(self) -> None:
        """The client has acknowledged it, or nobody else may have it: QoS 2 that was sent, and what is dropped by name."""

    def returned(self) -> None:
        """The session of the member has ended before: another member gets it."""


class Store(Protocol):
    """The durable side: virtual queues of persistent sessions and retained messages. Fulfilled by `iothub_services.queues.writer`.

    Each answer is a call on the Plane, named in the docstring, made on the reactor thread in batches.
    """

    def append(self, publish: Any) -> None:
        """Make one `StoredPublish` durable -> `plane.stored(publish, positions)` or `not_stored(publish, is_written, is_final)`."""

    def read(self, session: Any, after: int, count: int, size_bytes: int) -> None:
        """Read a page of a session's queue -> `plane.page(session, records, upto, is_short)`."""

    def ack(self, session: Any, upto: int) -> None:
        """Move the durable head (batched by the caller: 64 positions or 100 ms) -> `plane.head_moved(session, upto)`."""

    def release(self, session: Any, position: int) -> None:
        """Make "PUBREC seen" durable -> `plane.released(session, position)`."""

    def reserve(self, session: Any, upto: int) -> None:
        """Make "positions up to this may have been sent" durable -> `plane.reserved(session, upto)`."""

    def finish_inbound(self, session: Any, packet_id: int) -> None:
        """Forget an inbound QoS 2 Packet Identifier (PUBREL, or refused) -> `plane.inbound_finished(session, packet_id)`."""


class Observer(Protocol):
    """Gets notified of what the plane did, for metrics, events and logs; aggregate counters are read from `plane.counters` instead."""

    def dropped(self, tenant: Any, session: Any, drop: Drop, count: int) -> None: ...

    def limited(self, tenant: Any, session: Any, limit: str, count: int) -> None:
        """A limit of the tenant said no. `limit`: the attribute of `TenantLimits`, `ConnectionSettings`, `TenantPlane` or `Session`."""
