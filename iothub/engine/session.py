# cython: annotation_typing=False
"""One client's protocol state, connected or not: window, backlog, inbound QoS 2 identifiers, cached grants.

Knows no sockets, no encodings and no store: `inbound` and `outbound` walk it. The control plane keeps its own record in `control`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from iothub.engine.limits import DeviceMeters
from iothub.engine.message import Delivery
from iothub.engine.ports import Policy
from iothub.engine.router import Subscription
from iothub.engine.tenant import TenantPlane
from iothub.engine.window import Window

if TYPE_CHECKING:
    from iothub.engine.connection import Connection

# What is known of an inbound QoS 2 Packet Identifier.
STORING = 1  # delivered to transient receivers, on its way to disk
ROUTED = 2  # PUBREC sent or ready; only PUBREL is awaited
FINISHING = 3  # PUBREL seen, its removal on its way to disk
UNSTORED = 4  # the store failed: what needs no store was delivered; a repeated PUBLISH is stored again and delivered to nobody twice
REFUSED = 5  # its removal on its way to disk, and then a PUBREC that refuses: a next message under it would be taken for the repeat of this one


class DenyAll:
    """The Policy of a session that was given none: doors open only when somebody opens them."""

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
_NO_SUBSCRIPTIONS: Mapping[tuple[bytes | None, bytes], Subscription] = MappingProxyType({})  # nobody can write to it


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
        self.queue_id = queue_id
        self.epoch = epoch
        self.connection: Connection | None = None
        self.policy: Policy = _DENY_ALL
        self.publishes_everything = False  # the policy's answers, at hand
        self.receives_everything = False
        self.subscriptions = _NO_SUBSCRIPTIONS  # by group and Topic Filter; changed by `note` and `forget`
        self.control: Any = None
        self.meters: DeviceMeters | None = None
        self.window: Window | None = None
        self.receive_maximum = 0  # of the present connection
        self.backlog: list[Delivery | None] | None = None
        self.backlog_start = 0
        self.backlog_bytes = 0
        self.backlog_qos0 = 0
        self.shared: dict[int, Delivery] | None = None  # transient: QoS 1 of shared groups in flight, by position
        self.inbound: dict[int, int] | None = None  # Packet Identifier -> STORING, ...
        self.publish_grants: dict[bytes, bool] | None = None
        self.receive_grants: dict[bytes, bool] | None = None
        self.announced = 0
        self.loaded = 0
        self.is_behind = False
        self.is_reading = False
        self.stale_pages = 0  # answers still to come for reads of an earlier connection
        self.is_waiting = False  # listed for a pump at the next tick
        self.is_lagging = False  # listed for a flush of the durable head at the next tick
        self.passed_meters = 0  # outbound meters that the first waiting delivery has passed
        self.replay_topics: set[bytes] | None = None  # delivered live while a replay is expected

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

    def obey(self, policy: Policy) -> None:
        """Put a policy in force; every cached answer is forgotten."""
        self.policy = policy
        self.publishes_everything = policy.publishes_everything
        self.receives_everything = policy.receives_everything
        self.publish_grants = None
        self.receive_grants = None

    def note(self, subscription: Subscription) -> None:
        """Keep a subscription, in place of the one with its Topic Filter and group."""
        if isinstance(self.subscriptions, dict):
            self.subscriptions[subscription.group, subscription.filter] = subscription
        else:
            self.subscriptions = {(subscription.group, subscription.filter): subscription}

    def forget(self, group: bytes | None, filter: bytes) -> None:
        """Keep a subscription no longer."""
        if isinstance(self.subscriptions, dict):
            self.subscriptions.pop((group, filter), None)

    def forget_all(self) -> None:
        """Keep no subscription any longer."""
        self.subscriptions = _NO_SUBSCRIPTIONS

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
