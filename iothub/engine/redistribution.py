"""Unacknowledged QoS 1 messages of an ending session's shared subscriptions go to another member of each share, once, §4.8.2.

Knows no store and no session directory: whoever ends a persistent session reads its queue page by page and waits for each page to be durable.
QoS 2 ends with its session [MQTT-4.8.2-5], and so does what came by a subscription that is not shared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from iothub.base.reasons import Drop
from iothub.engine.distribute import Distribution
from iothub.engine.filters import topic_matches
from iothub.engine.message import Delivery, Message
from iothub.engine.outbox import StoredPublish
from iothub.engine.publishing import Publishing
from iothub.engine.router import Group
from iothub.engine.state import Session, TenantPlane
from iothub.engine.storage import GAVE_UP
from iothub.engine.turn import Turn

# how many messages other members have, or have dropped under a name of their own (full queue); how many a store failed to take
OnRedistributed = Callable[[int, int], None]


class Redistribution:
    """Finds another member for each message."""

    def __init__(self, turn: Turn, publishing: Publishing, distribution: Distribution) -> None:
        self.turn = turn
        self.publishing = publishing
        self.distribution = distribution

    def leave_groups(self, session: Session) -> bool:
        """Take a session out of its shared groups, so that nobody chooses it any more; False: it has no shared subscription."""
        shared = [(group, filter) for group, filter in session.subscriptions if group is not None]
        for group, filter in shared:
            session.tenant.router.unsubscribe(session, filter, group)
        return bool(shared)

    def join_groups(self, session: Session) -> None:
        """Put it into its shared groups again: it does not end."""
        for (group, _), subscription in session.subscriptions.items():
            if group is not None:
                session.tenant.router.subscribe(subscription)

    def redistribute_delivery(self, tenant: TenantPlane, message: Message, group: Any) -> None:
        """Give one delivery of a transient session to another member; without one it is dropped. `group` had chosen the session."""
        if not isinstance(group, Group):
            group.returned()
        elif not self.redistribute_message(tenant, message, group.name, group.filter):
            self.turn.drop(tenant, None, Drop.SESSION_ENDED, 1)

    def redistribute_message(self, tenant: TenantPlane, message: Message, name: bytes, filter: bytes) -> bool:
        """Give a message that no store has to a member of a shared group; False: there is none."""
        queued = self.distribution.redistribute(tenant, message, name, filter, False)
        if queued is not None:
            self.publishing.append(StoredPublish(tenant, message, queued, False))
        return self.distribution.receivers > 0

    def redistribute_page(self, session: Session, records: list[Delivery], on_done: OnRedistributed) -> None:
        """Give one page of a persistent session's queue to other members; `on_done`, perhaps at once, when what they get is durable."""
        redistributed = failed = 0
        publishes: list[StoredPublish] = []
        for message, group in self._shared(session, records):
            queued = self.distribution.redistribute(session.tenant, message, *group, True)
            if queued is not None:
                publishes.append(StoredPublish(session.tenant, message, queued, False))
            elif self.distribution.receivers:
                redistributed += 1

        waiting = len(publishes)

        def stored(code: int) -> None:
            nonlocal waiting, redistributed, failed
            waiting -= 1
            if code == GAVE_UP:
                failed += 1
            else:
                redistributed += 1
            if waiting == 0:
                on_done(redistributed, failed)

        for publish in publishes:
            publish.on_done = stored
            self.publishing.append(publish)
        if not publishes:
            on_done(redistributed, failed)

    def _shared(self, session: Session, records: list[Delivery]) -> Iterator[tuple[Message, tuple[bytes, bytes]]]:
        """Yield what is for other members, each with name and filter of its share.

        A record says that it was shared, not by which group: of several that match, each gets one copy of the message, as each did before.
        A session that has left the group since keeps its copy to itself.
        """
        seen: dict[bytes, int] = {}
        for record in records:
            if not record.is_shared or record.qos != 1:
                continue
            message: Message = record.message
            groups = [
                (group, filter)
                for group, filter in session.subscriptions
                if group is not None and topic_matches(filter, message.topic)
            ]
            copy = seen[message.message_id] = seen.get(message.message_id, -1) + 1
            if groups:
                yield message, groups[copy % len(groups)]
