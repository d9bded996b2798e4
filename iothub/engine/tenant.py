# cython: annotation_typing=False
"""The engine's half of one tenant: its router, its sessions by Client Identifier, its meters and counters.

Knows no other tenant, no account and no store. The control plane makes it, sets its meters and hooks, and replaces its limits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from iothub.engine.counters import Counters
from iothub.engine.limits import TenantLimits
from iothub.engine.message import Message
from iothub.engine.router import Router

if TYPE_CHECKING:
    from iothub.engine.session import Session


class TenantPlane:
    """One tenant in the message plane.

    Meters answer `take(units, now)`: 0.0 taken, > 0 seconds to wait, -1.0 refused until the window ends (day counters). None: no limit.
    `may_retain(topic, size)`: False keeps a PUBLISH with RETAIN 1 from being retained (it is delivered all the same).
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
        self.sessions: dict[str, Session] = {}
        self.inbound_messages: Any = None
        self.inbound_bytes: Any = None
        self.outbound_messages: Any = None
        self.outbound_bytes: Any = None
        self.day_messages: Any = None
        self.day_bytes: Any = None
        self.persistent_fanout: Any = None
        self.sinks = 0  # sessions in its router that are sinks
        self.sink_messages: Any = None
        self.sink_bytes: Any = None
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
        """What holds now. Those of every message are at hand as plain numbers too: `fanout`, `fanout_bytes`, `user_properties`."""
        return self._limits

    @limits.setter
    def limits(self, limits: TenantLimits) -> None:
        self._limits = limits
        self.fanout = limits.fanout
        self.fanout_bytes = limits.fanout_bytes
        self.user_properties = limits.user_properties
