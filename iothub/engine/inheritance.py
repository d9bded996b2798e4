"""What a member of a shared group leaves to the others when its session ends: QoS 1 that it never acknowledged.

Knows no store and no session directory: whoever ends the session reads its queue page by page and waits for each page to be durable elsewhere.
QoS 2 dies with its session [MQTT-4.8.2-5], and so does what came by a subscription that was not shared.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from iothub.base.reasons import Drop
from iothub.engine.distribute import Distribution
from iothub.engine.filters import topic_matches
from iothub.engine.message import Delivery, Message
from iothub.engine.outbox import SHARED_FLAG, QueueTarget, StoredPublish
from iothub.engine.publishing import Publishing
from iothub.engine.session import Session
from iothub.engine.storage import GAVE_UP, NOT_WILLING
from iothub.engine.tenant import TenantPlane
from iothub.engine.turn import Turn


@dataclass
class Left:
    """What of a page has found no place. `again`: the store gave it up for now. `unwilling`: its heir's queue cannot be read.

    `heirs`: the queues of such heirs. `nobody`: there is no heir.
    """

    again: list[Any] = field(default_factory=list)
    unwilling: list[Any] = field(default_factory=list)
    heirs: set[int] = field(default_factory=set)
    nobody: list[Any] = field(default_factory=list)


class Inheritance:
    """Distributes what is left."""

    def __init__(self, turn: Turn, publishing: Publishing, distribution: Distribution) -> None:
        self.turn = turn
        self.publishing = publishing
        self.distribution = distribution

    def leave(self, session: Session) -> bool:
        """Take a session out of its shared groups, so that nobody chooses it any more; whether it was in one."""
        shared = [(group, filter) for group, filter in session.subscriptions if group is not None]
        for group, filter in shared:
            session.tenant.router.unsubscribe(session, filter, group)
        return bool(shared)

    def join(self, session: Session) -> None:
        """Take it into its shared groups again: it lives on."""
        for (group, _), subscription in session.subscriptions.items():
            if group is not None:
                session.tenant.router.subscribe(subscription)

    def hand_on(self, tenant: TenantPlane, delivery: Delivery) -> None:
        """Give one delivery of a transient session to another member of the group that had chosen it."""
        group = delivery.group
        queued = self.distribution.redistribute(tenant, delivery.message, group.name, group.filter, False, set())
        if self.distribution.receivers == 0:
            self.turn.drop(tenant, None, Drop.SESSION_ENDED, 1)
        if queued is not None:
            self.publishing.append(StoredPublish(tenant, delivery.message, queued, False))

    def bequeath(
        self, session: Session, records: list[Any], given: set[int], spared: set[int], on_done: Callable[[Left], None]
    ) -> None:
        """Give one page of its queue, but the positions `given` before, to other members, but those with one of the queues `spared`.

        `on_done`, perhaps at once, when all of it is durable but what has found no place.
        """
        waiting = len(records) + 1
        seen: dict[bytes, int] = {}
        left = Left()

        def done(record: Any, heir: int, code: int) -> None:
            nonlocal waiting
            waiting -= 1
            if code == GAVE_UP:
                left.again.append(record)
            elif code == NOT_WILLING:
                left.unwilling.append(record)
                left.heirs.add(heir)
            if waiting == 0:
                on_done(left)

        for record in records:
            queued = None
            group = (
                self._group(session, record.message, seen) if record.flags & SHARED_FLAG and record.qos == 1 else None
            )
            if group is not None and record.position not in given:
                queued = self._pass_on(session, record.message, group, spared)
                if self.distribution.receivers == 0:
                    left.nobody.append(record)
            if queued is None:
                done(record, 0, 0)
            else:
                publish = StoredPublish(session.tenant, record.message, queued, False)
                publish.on_done = partial(done, record, queued[0].session.queue_id)
                self.publishing.append(publish)
        done(None, 0, 0)

    def _pass_on(
        self, session: Session, message: Message, group: tuple[bytes, bytes], spared: set[int]
    ) -> list[QueueTarget] | None:
        """Choose the next member; None: nobody is left (no `receivers`), or it went to a member without a queue."""
        if not group[0]:
            self.distribution.receivers = 0
            return None
        return self.distribution.redistribute(session.tenant, message, *group, session.is_leaving, spared)

    def _group(self, session: Session, message: Message, seen: dict[bytes, int]) -> tuple[bytes, bytes]:
        """Return name and filter of the group whose copy this is; the name is empty: it has left that group.

        A record says that it was shared, not by which group: of several that match, each gets one copy of the message, as each did before.
        """
        groups = [
            (group, filter)
            for group, filter in session.subscriptions
            if group is not None and topic_matches(filter, message.topic)
        ]
        rank = seen.get(message.message_id, 0)
        seen[message.message_id] = rank + 1
        return groups[rank % len(groups)] if groups else (b"", b"")
