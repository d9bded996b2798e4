"""Messages of shared groups whose member is at another hub: kept until a client there has them, and chosen anew if none gets them.

Knows no link and no frame: what one other hub has of them is `iothub.peers.peer_groups`.

    a PUBLISH -> a member here, if one has room; else a hub whose clients are in the group, by turns -> GROUP_PUBLISH, and the message is kept
    there: a member is chosen -> its client acknowledges -> GROUP_DONE
                              -> none takes it, or the session ends before -> another member there, else GROUP_NONE -> chosen anew
    QoS 2: before it goes to a client GROUP_TAKEN is sent and acknowledged, so that it is not chosen anew when that hub is gone
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from iothub.base.reasons import Drop
from iothub.engine.message import Message
from iothub.engine.plane import Plane
from iothub.engine.router import Group
from iothub.engine.state import TenantPlane
from iothub.peers.ports import PeerId

OnDone = Callable[[], None]


class Kept:
    """A message on its way to a member at another hub. `is_taken`: a client there may have it already, with QoS 2."""

    __slots__ = ("filter", "is_sent", "is_taken", "message", "name", "reason", "refused", "tenant")

    def __init__(self, tenant: TenantPlane, message: Message, group: Group) -> None:
        self.tenant = tenant
        self.message = message
        self.name = group.name
        self.filter = group.filter
        self.is_sent = False
        self.is_taken = False
        self.refused: tuple[PeerId, ...] = ()  # hubs where nobody took it
        self.reason = Drop.SESSION_ENDED  # of its drop, if nobody takes it anywhere


class Groups:
    """What all other hubs have of this one's messages for shared groups. On the reactor thread.

    Invariants: what is kept is at one hub at a time, and is counted in `buffered_bytes` of its tenant, whose bound is the bound of all that is
    kept. It is chosen anew only when that hub is gone or has returned it, and never for a hub that has returned it.
    """

    def __init__(self, plane: Plane, call_soon: Callable[[OnDone], object]) -> None:
        """`call_soon`: calls back when the running turn is over."""
        self.plane = plane
        self._call_soon = call_soon
        self._soon: list[OnDone] = []
        self._number = 0
        self._choosing: list[Kept] = []  # the message that is being chosen anew

    def next_number(self) -> int:
        self._number += 1
        return self._number

    def later(self, call: OnDone) -> None:
        """Call when the running turn is over: now the plane may be in the middle of a message."""
        self._soon.append(call)
        if len(self._soon) == 1:
            self._call_soon(self._run)

    # --- what is kept

    def keep(self, tenant: TenantPlane, message: Message, group: Group) -> Kept:
        """Keep a message that is sent to another hub now; return the same again for one that is chosen anew."""
        if self._choosing and self._choosing[0].message is message:
            kept = self._choosing[0]
        else:
            kept = Kept(tenant, message, group)
            self.plane.turn.hold(tenant, message.size)
        kept.is_sent = True
        return kept

    def forget(self, kept: Kept) -> None:
        """Somebody has it, or it is dropped."""
        self.plane.turn.hold(kept.tenant, -kept.message.size)

    def drop(self, kept: Kept) -> None:
        """Drop by name what nobody may have any more."""
        self.plane.turn.drop(kept.tenant, kept.message.publisher, kept.reason, 1)
        self.forget(kept)

    def is_refused_by(self, peer: PeerId) -> bool:
        """Tell whether the message that is being chosen anew was returned by this hub."""
        return bool(self._choosing) and peer in self._choosing[0].refused

    def choose_anew(self, kept: Kept, refused: PeerId, reason: Drop) -> None:
        """Give it to another member, soon: nobody at this hub has it. `reason`: of the drop if there is no other."""
        kept.refused += (refused,)
        kept.is_taken = False
        if kept.reason is Drop.SESSION_ENDED:
            kept.reason = reason
        self.later(partial(self._choose_anew, kept))

    def _choose_anew(self, kept: Kept) -> None:
        self._choosing.append(kept)
        kept.is_sent = False
        try:
            is_given = self.plane.redistribution.redistribute_message(kept.tenant, kept.message, kept.name, kept.filter)
        finally:
            self._choosing.pop()
        if not is_given:
            self.drop(kept)
        elif not kept.is_sent:  # it is not at another hub
            self.forget(kept)

    def _run(self) -> None:
        calls, self._soon = self._soon, []
        self.plane.turn.begin()
        for call in calls:
            call()
        self.plane.end_batch()
