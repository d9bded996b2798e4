"""The bounds that hold the plane's memory, and what CONNECT agreed on: values made by the control plane, read by the engine.

Knows no quota names and no configuration keys: the caller that makes these values maps them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class TenantLimits:
    """What one tenant's messages may cost. Replace the whole value to change it (`plane.limits_changed`)."""

    packet_bytes: int = 1 << 20
    topic_levels: int = 128
    topic_bytes: int = 4096
    user_properties: int = 128
    fanout: int = 10_000  # receivers of one message; the rest is dropped and counted
    fanout_bytes: int = 64 << 20  # receivers times payload of one message
    backlog_messages: int = 10_000  # per session, in memory
    backlog_bytes: int = 16 << 20
    buffered_bytes: int = 256 << 20  # sum of backlogs, out-buffers and large incomplete packets of the tenant
    max_pause_s: float = 10.0  # how long a publisher over its rate is not read before it is refused
    store_qos0: bool = False  # QoS 0 for offline persistent sessions goes to their queue
    close_on_denied: bool = False  # 3.x: close instead of acknowledging and dropping a denied PUBLISH


@dataclass(frozen=True, slots=True)
class DeviceMeters:
    """The meters of one device; like the tenant's. Most devices have none of their own."""

    inbound_messages: Any = None
    inbound_bytes: Any = None
    outbound_messages: Any = None
    outbound_bytes: Any = None


@dataclass(frozen=True, slots=True)
class PlaneLimits:
    """What one worker holds."""

    connections: int = 200_000
    connect_timeout_s: float = 10.0
    pre_connect_bytes: int = (
        4096  # buffered before CONNECT is accepted, unless a CONNECT within `connect_bytes` is arriving
    )
    connect_bytes: int = 128 << 10
    chunk_bytes: int = 64 << 10  # the most that a transport hands over in one feed
    out_soft_bytes: int = 256 << 10  # above it, and congested: QoS 0 is dropped
    out_hard_bytes: int = 8 << 20  # above it: QoS 0 is dropped, QoS 1/2 waits in the backlog; twice that closes
    buffered_bytes: int = 1 << 30  # the same of all tenants
    unstored_messages: int = 65_536  # handed to the store and not yet durable
    unstored_bytes: int = 64 << 20
    unstored_per_connection: int = 1024
    ack_batch: int = 64  # positions by which the durable head may lag (or one tick)
    reserve_step: int = 1024
    page_messages: int = 128
    page_bytes: int = 256 << 10
    grants: int = 1024  # cached answers per session and direction
    fanout_slice: int = 1000  # receivers served in one turn; a message with more is delivered over several
    turn_deliveries: int = 20_000  # by messages with many receivers in one turn; what is above goes in slices too
    sliced_receivers: int = 500_000  # of one tenant, routed and not served: above it its publishers pause
    replay_slice: int = 256  # retained messages given to one session per tick


@dataclass(frozen=True, slots=True)
class ConnectionSettings:
    """What CONNECT and CONNACK agreed on for one connection."""

    version: int = 4  # 3, 4 or 5
    keep_alive_s: int = 0  # in force (Server Keep Alive wins); 0: none
    receive_maximum: int = 64  # the client's, or `mqtt.max_inflight` in 3.x: our QoS 1/2 in flight towards it
    topic_alias_maximum: int = 0  # the client's: aliases that we may use
    # ours: QoS 1/2 of the client not yet completed, more closes it (0x93); in 3.x: not yet answered, it is not read until there is room
    inbound_maximum: int = 64
    topic_aliases: int = 0  # ours: aliases that the client may use
    packet_bytes: int = 1 << 20  # ours: largest packet that the client may send


@dataclass(frozen=True, slots=True)
class ListenerInfo:
    """The listener that accepted a connection."""

    name: str = "tcp"
    kind: str = "tcp"  # tcp, tls, ws, wss
