# cython: annotation_typing=False
"""What the plane keeps of tenants, their sessions, and the connections of those: three kinds of objects that point at each other.

Knows no sockets, no encodings, no store and no account, and does no work itself: other modules of this package read and change what stands
here. The control plane keeps its own record of each in `control`.

    TenantPlane  --sessions-->  Session  --connection-->  Connection
                 <---tenant---           <----session---
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from socket import inet_aton, inet_ntoa
from types import MappingProxyType
from typing import Any

from iothub.base.reasons import Reason
from iothub.engine.counters import Counters
from iothub.engine.limits import DeviceMeters, ListenerInfo, TenantLimits
from iothub.engine.message import Delivery, Message
from iothub.engine.ports import ByteSink, Policy, Transport
from iothub.engine.router import Router, Subscription
from iothub.engine.sessions import Sessions
from iothub.engine.unacknowledged import Unacknowledged
from iothub.engine.window import Window

NOTHING = bytearray()
"""What every connection with nothing to send has for its `out`: before anything is appended it gets a buffer of its own (`Turn.touch`)."""
OWED = -1  # the `code` of an AckSlot whose Reason Code is not known yet
_PINNED = memoryview(NOTHING)  # an append to it raises BufferError, and no client gets bytes of another one


class TenantPlane:
    """One tenant in the message plane.

    Meters answer `take(units, now)`: 0.0 taken, > 0 seconds to wait, -1.0 refused until the window ends (day counters). None: no limit.
    `may_retain(topic, size)`: asked for each PUBLISH with RETAIN 1, size 0 deletes; False: it is delivered, and not retained.
    Hooks (None: no cost): `publish_hook(session, message)` gives the message to route or None; `deliver_hook(session, message)` says whether.
    """

    def __init__(
        self, tenant_id: int, name: str, limits: TenantLimits | None = None, router: Router | None = None
    ) -> None:
        self.tenant_id = tenant_id
        self.name = name
        self.limits = limits or TenantLimits()  # see the property
        self.router = router if router is not None else Router()
        self.counters = Counters()
        self.sessions = Sessions(self.router)
        self.inbound_messages: Any = None
        self.inbound_bytes: Any = None
        self.outbound_messages: Any = None
        self.outbound_bytes: Any = None
        self.day_messages: Any = None
        self.day_bytes: Any = None
        self.persistent_fanout: Any = None
        self.sinks = 0  # sessions in its router that are asked `is_full` before a message is routed: sinks, and peers whose link is full
        self.is_held = (
            False  # its publishers wait: another hub may have acknowledged a subscription that is not known here
        )
        self.sink_messages: Any = None
        self.sink_bytes: Any = None
        self.interest: Any = None  # an `Interest`; None: no other hub needs to know what its clients subscribe
        self.routing: Any = None  # a `Routing`; None: all hubs route by all subscriptions here
        self.changing: Any = None  # a `Changing`; None: all hubs have the same subscriptions of persistent sessions
        self.may_retain: Callable[[bytes, int], bool] | None = None
        self.publish_hook: Callable[[Session, Message], Message | None] | None = None
        self.deliver_hook: Callable[[Session, Message], bool] | None = None
        self.buffered_bytes = 0  # backlogs, out-buffers and large incomplete packets of its clients
        self.slices: list[Any] | None = None  # messages that are delivered over several turns, oldest first
        self.sliced = 0  # their receivers
        self.connections = 0
        self.control: object = None  # the control plane's own record of this tenant
        self.share: object = None  # the poller's record of what it has used of the running round

    @property
    def limits(self) -> TenantLimits:
        """What holds now. Those that every message needs are plain numbers too: `fanout`, `most_buffered_bytes` ..."""
        return self._limits

    @limits.setter
    def limits(self, limits: TenantLimits) -> None:
        self._limits = limits
        self.fanout = limits.fanout
        self.fanout_bytes = limits.fanout_bytes
        self.user_properties = limits.user_properties
        self.most_backlog_messages = limits.backlog_messages
        self.most_backlog_bytes = limits.backlog_bytes
        self.most_buffered_bytes = limits.buffered_bytes


class Place:
    """Where a persistent session is, among hubs that share its stores: as the log says it, as far as the log was followed.

    `holder`: the node number of the hub that has it, runs its deadlines and fires its Will; HERE: this one. `is_online`: its client is connected
    there. `logged_epoch`: of its last event in the log. `since_ms`: when it went offline there. `claimed`: the last epoch of its queue that
    this hub's end of the session does not wait for: claimed for that, or by somebody who did not log it. `is_counted`: its units are counted
    there.
    """

    def __init__(self, holder: int, logged_epoch: int, *, is_online: bool = False, since_ms: int = 0) -> None:
        self.holder = holder
        self.logged_epoch = logged_epoch
        self.is_online = is_online
        self.since_ms = since_ms
        self.claimed = 0
        self.is_counted = False


class DenyAll:
    """The Policy of a session that has no other: nothing is allowed."""

    version = 0
    publishes_everything = False
    receives_everything = False

    def may_publish(self, topic: bytes) -> bool:
        """No."""
        return False

    def may_receive(self, topic: bytes) -> bool:
        """No."""
        return False


_DENY_ALL = DenyAll()
_NO_SUBSCRIPTIONS: Mapping[tuple[bytes | None, bytes], Subscription] = MappingProxyType({})  # read-only


class Session:
    """One session of one tenant.

    Invariants. `backlog` is None or a list whose entries before `backlog_start` are gone. Positions in it ascend and are contiguous with the
    window but for gaps that the queue itself has. `is_behind` (persistent): not everything announced is in window or backlog.
    `loaded`: the last position that came to window or backlog, or was scanned by a page. Transient sessions are discarded when they disconnect,
    and have a window from their first QoS > 0 on.
    """

    def __init__(
        self, tenant: TenantPlane, client_id: str, device: str, is_persistent: bool, queue_id: int = 0, epoch: int = 0
    ) -> None:
        self.tenant = tenant
        self.client_id = client_id
        self.device = device
        self.is_persistent = is_persistent
        self.is_discarded = False
        self.is_sink = (
            False  # no client's: `control` takes its messages, QoS 0 too, and is asked `is_full` before one is routed
        )
        self.is_peer = (
            False  # a sink that is another hub, with a subscription for each Topic Filter that its clients need
        )
        self.queue_id = queue_id
        self.epoch = epoch
        self.connection: Connection | None = None
        self.policy: Policy = _DENY_ALL
        self.publishes_everything = False  # copies of the policy's answers
        self.receives_everything = False
        self._subscriptions: Any = None  # the one that there is, or all in a dictionary; None: there is none
        self.control: Any = None
        self.meters: DeviceMeters | None = None
        self.window: Window | None = None
        self.receive_maximum = 0  # of the present connection
        self.backlog: list[Delivery | None] | None = None
        self.backlog_start = 0
        self.backlog_bytes = 0
        self.backlog_qos0 = 0
        self.shared: Unacknowledged | None = None  # transient: QoS 1 of shared groups in flight
        self.inbound: dict[int, int] | None = None  # Packet Identifier -> STORING, ...
        self.publish_grants: dict[bytes, bool] | None = None
        self.receive_grants: dict[bytes, bool] | None = None
        self.announced = 0
        self.loaded = 0
        self.connected_at_ms = 0  # wall clock, of the present or last connection; the control plane sets it
        self.is_behind = False
        self.is_reading = False
        self.stale_pages = 0  # answers still to come for reads of an earlier connection
        self.is_waiting = False  # listed for a pump at the next tick
        self.is_lagging = False  # listed for a flush of the durable head at the next tick
        self.passed_meters = 0  # outbound meters that the first waiting delivery has passed

    def is_online_elsewhere(self) -> bool:
        """Whether another hub has the client, and delivers to it what needs no queue."""
        return self.tenant.interest is not None and self.control is not None and self.control.is_online_elsewhere

    def may_publish(self, topic: bytes, bound: int) -> bool:
        """Ask the policy once per Topic Name; up to `bound` answers are kept until the policy changes."""
        if self.publishes_everything and topic[0] != 0x24:
            return True
        grants = self.publish_grants
        if grants is None:
            grants = self.publish_grants = {}
        answer = grants.get(topic)
        if answer is None:
            if len(grants) >= bound:
                grants.clear()
            answer = grants[topic] = self.policy.may_publish(topic)
        return answer

    def may_receive(self, topic: bytes, bound: int) -> bool:
        """Ask the policy once per Topic Name; up to `bound` answers are kept until the policy changes."""
        if self.receives_everything and topic[0] != 0x24:
            return True
        grants = self.receive_grants
        if grants is None:
            grants = self.receive_grants = {}
        answer = grants.get(topic)
        if answer is None:
            if len(grants) >= bound:
                grants.clear()
            answer = grants[topic] = self.policy.may_receive(topic)
        return answer

    def apply_policy(self, policy: Policy) -> None:
        """Put a policy in force, and forget every cached answer."""
        self.policy = policy
        self.publishes_everything = policy.publishes_everything
        self.receives_everything = policy.receives_everything
        self.publish_grants = None
        self.receive_grants = None

    @property
    def subscriptions(self) -> Mapping[tuple[bytes | None, bytes], Subscription]:
        """Those by group and Topic Filter, changed by `note` and `forget`. Most sessions have one, which costs no table."""
        kept = self._subscriptions
        if kept is None:
            return _NO_SUBSCRIPTIONS
        return kept if isinstance(kept, dict) else {(kept.group, kept.filter): kept}

    def note(self, subscription: Subscription) -> None:
        """Keep a subscription, in place of the one with its Topic Filter and group."""
        kept = self._subscriptions
        place = subscription.group, subscription.filter
        if isinstance(kept, dict):
            kept[place] = subscription
        elif kept is None or (kept.group, kept.filter) == place:
            self._subscriptions = subscription
        else:
            self._subscriptions = {(kept.group, kept.filter): kept, place: subscription}

    def forget(self, group: bytes | None, filter: bytes) -> None:
        """Keep a subscription no longer."""
        kept = self._subscriptions
        if isinstance(kept, dict):
            kept.pop((group, filter), None)
        elif kept is not None and (kept.group, kept.filter) == (group, filter):
            self._subscriptions = None

    def forget_all(self) -> None:
        """Keep no subscription any longer."""
        self._subscriptions = None

    def open_window(self) -> Window:
        """Return the window, which a transient session has not before it needs one."""
        if self.window is None:
            self.window = Window(self.receive_maximum, self.is_persistent)
        return self.window

    def backlog_length(self) -> int:
        return 0 if self.backlog is None else len(self.backlog) - self.backlog_start

    def push(self, delivery: Delivery) -> None:
        """Put a delivery at the end of the backlog; the caller accounts for its size."""
        if self.backlog is None:
            self.backlog = []
        self.backlog.append(delivery)
        self.backlog_bytes += delivery.message.size
        if delivery.position == 0 and delivery.qos == 0:
            self.backlog_qos0 += 1

    def peek(self) -> Delivery | None:
        return None if self.backlog is None else self.backlog[self.backlog_start]

    def pop(self) -> int:
        """Remove the first delivery; return its size."""
        backlog = self.backlog
        if backlog is None:
            return 0
        start = self.backlog_start
        delivery = backlog[start]
        if delivery is None:
            return 0
        size = delivery.message.size
        self.backlog_bytes -= size
        if delivery.position == 0 and delivery.qos == 0:
            self.backlog_qos0 -= 1
        start += 1
        if start == len(backlog):
            self.backlog = None
            start = 0
        elif start >= 64 and start * 2 >= len(backlog):
            del backlog[:start]
            start = 0
        else:
            backlog[start - 1] = None
        self.backlog_start = start
        return size

    def take_backlog(self) -> list[Delivery]:
        """Empty the backlog; return what was in it."""
        if self.backlog is None:
            return []
        deliveries = [delivery for delivery in self.backlog[self.backlog_start :] if delivery is not None]
        self.backlog = None
        self.backlog_start = 0
        self.backlog_bytes = 0
        self.backlog_qos0 = 0
        return deliveries


class AckSlot:
    """The place of one PUBACK or PUBREC in the order of its connection's acknowledgements [MQTT-4.6.0-2] [MQTT-4.6.0-3].

    `code`: the Reason Code, or OWED. `is_held`: a refusal whose Packet Identifier is not free yet: it may not leave before.
    """

    def __init__(self, packet_id: int, qos: int) -> None:
        self.packet_id = packet_id
        self.qos = qos
        self.code = OWED
        self.is_held = False


def ack_slot(packet_id: int, qos: int) -> AckSlot:
    """Make a slot. The same as the constructor, without Python's way of passing arguments: it runs once per message."""
    slot: AckSlot = AckSlot.__new__(AckSlot)
    slot.packet_id = packet_id
    slot.qos = qos
    slot.code = OWED
    slot.is_held = False
    return slot


class Connection:
    """One network connection.

    `version` is 0 before CONNECT was accepted. `is_waiting`: the control plane has a packet; `is_blocked`: a PUBLISH waits for a quota or the
    store; in both cases the parser stands still and the transport is paused. `is_unanswered`: blocked until an answer to the client makes room.
    `is_closing`: ends with the batch, and nothing is parsed any more; `is_closed`: has ended. `out` is NOTHING before
    anything was sent, and again after a `rest`.
    """

    def __init__(
        self, plane: ByteSink, transport: Transport, listener: ListenerInfo, peer: str, certificate_subject: str | None
    ) -> None:
        self.plane = plane
        self.transport = transport
        self.out = NOTHING
        self.session: Session | None = None
        self.tenant: TenantPlane | None = None
        self.version = 0
        self.listener = listener
        self._peer_text: str | None = peer  # None: it is in `_peer_packed`
        self._peer_packed = 0
        self.certificate_subject = certificate_subject
        self.control: Any = None
        self.partial: bytearray | None = None
        self.needed = 0  # bytes that `partial` must have before there is something to parse
        self.is_waiting = False
        self.is_blocked = False
        self.is_unanswered = False
        self.is_paused = False
        self.is_closing = False
        self.is_lost = False
        self.is_closed = False
        self.is_dirty = False  # listed for waking at the end of the batch
        self.is_congested = False  # what was written in an earlier batch is still in `out`
        self.is_watched = False  # its out-buffer is counted in `buffered_bytes`
        self.has_connect = False  # the first packet was seen
        self.is_held_up = False  # behind its blocked PUBLISH is a packet that nothing may go before
        self.accounted = 0  # bytes of `out` that are counted in `buffered_bytes`
        self.kept_bytes = 0  # of `partial`, the same
        self.close_reason: Reason | None = None
        self.final_packet = b""
        self.timer: Any = None
        self.last_seen = 0.0
        self.blocked_since = 0.0
        self.wake_at = 0.0  # when the wheel ends a quota's wait; 0.0: it does not
        self.taken_meters = 0  # which meters the blocked PUBLISH has passed: bits, see `iothub.engine.quota`
        self.keep_alive_s = 0
        self.packet_bytes = 0  # largest packet that the client may send
        self.maximum_packet_size = (
            0  # largest that it accepts; 0: none. The control plane sets it when it has read the CONNECT
        )
        self.inbound_maximum = 0
        self.inbound_open = 0  # QoS 1/2 of the client not yet completed on this connection
        self.pending: list[AckSlot] | None = None  # acknowledgements that wait, in the order of their PUBLISHes
        self.unstored = 0
        self.aliases_in: dict[int, bytes] | None = None
        self.topic_aliases = 0
        self.aliases_out: dict[bytes, int] | None = None  # 0: seen once
        self.topic_alias_maximum = 0
        self.next_alias = 1

    @property
    def peer(self) -> str:
        """Address and port of the client, as logs and events name it."""
        return _peer_name(self._peer_packed) if self._peer_text is None else self._peer_text

    @property
    def peer_ip(self) -> str:
        """The address without the port."""
        if self._peer_text is None:
            return inet_ntoa((self._peer_packed >> 16).to_bytes(4, "big"))
        return self._peer_text.rpartition(":")[0].strip("[]")

    def rest(self) -> None:
        """Keep less: nothing happens for a while, as far as the transport knows. Costs too much for every turn."""
        if not self.out and not self.is_dirty:  # dirty: its buffer was just given to it, for what comes next
            self.out = NOTHING
        if self._peer_text is not None and self._peer_text[:1] != "[":
            self._peer_packed = _pack_peer(self._peer_text)
            if self._peer_packed:
                self._peer_text = None

    def is_stalled(self) -> bool:
        """Whether the parser stands still."""
        return self.is_waiting or self.is_blocked or self.is_closing

    def feed(self, data: bytes) -> None:
        """Take decrypted, unframed MQTT bytes from the transport. Never raises; may ask the transport to pause or close."""
        self.plane.feed(self, data)

    def lost(self, reason: Reason) -> None:
        """The socket is gone; called by the transport exactly once."""
        self.plane.lost(self, reason)


def _pack_peer(peer: str) -> int:
    """An IPv4 address and its port as one number, which needs no object; 0: it is something else."""
    host, _, port = peer.rpartition(":")
    try:
        packed = int.from_bytes(inet_aton(host), "big") << 16 | int(port)
    except (OSError, ValueError):
        return 0
    return packed if _peer_name(packed) == peer else 0


def _peer_name(packed: int) -> str:
    return f"{inet_ntoa((packed >> 16).to_bytes(4, 'big'))}:{packed & 0xFFFF}"
