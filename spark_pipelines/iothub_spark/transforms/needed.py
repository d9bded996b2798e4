"""Which of a session's events its state depends on: those that the fold would refuse, and those that later ones replace, are left out.

Knows the order of events, not what they say. The fold of what is needed is the fold of everything: a property test holds that, and
`iothub.records.state.fold` stays the only one that makes a state.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from iothub.records.state import SessionState
from iothub_spark.transforms.glance import Does, Glance


def needed(state: SessionState | None, glances: Iterable[Glance]) -> list[Glance]:
    """Return the events that must be folded over `state`, in their order. O(events)."""
    return _without_replaced(_accepted(state, glances))


def _accepted(state: SessionState | None, glances: Iterable[Glance]) -> list[Glance]:
    """Return what the fold accepts, from the last beginning of an incarnation on: nothing before it is left in the state."""
    is_known, is_live = state is not None, state is not None and not state.is_ended
    epoch, offset = (0, 0) if state is None else (state.epoch, state.offset)
    found: list[Glance] = []
    for glance in glances:
        does = glance.does
        if glance.epoch == 0 or glance.offset <= offset:
            continue
        if does is Does.CREATE:
            if not is_known or glance.epoch > epoch:
                found = [glance]
                is_known = is_live = True
                epoch = glance.epoch
            continue
        if not is_live or glance.epoch < epoch or does is Does.NOTHING:
            continue
        found.append(glance)
        epoch = glance.epoch
        is_live = does is not Does.END
    return found


def _without_replaced(found: Sequence[Glance]) -> list[Glance]:
    """Leave out, from the last to the first, what a later event says anew. The last one stays: its place and epoch are the state's."""
    if not found:
        return []
    last = found[-1]
    later = _Later()
    kept: list[Glance] = []
    for glance in reversed(found):
        is_replaced = last.does is Does.END or later.replaces(glance)
        must_stay = glance is last or glance.does is Does.CREATE or later.lacks(glance)
        if must_stay or not is_replaced:
            kept.append(glance)
            later.note_kept(glance)
        later.note(glance)
    kept.reverse()
    return kept


class _Later:
    """What the events behind one say."""

    def __init__(self) -> None:
        self._kinds: set[Does] = set()
        self._subscriptions: set[object] = set()
        self._has_device = False
        self._has_hub = False

    def note(self, glance: Glance) -> None:
        self._kinds.add(glance.does)
        if glance.does is Does.SUBSCRIPTION:
            self._subscriptions.add(glance.about)

    def note_kept(self, glance: Glance) -> None:
        self._has_device = self._has_device or glance.has_device
        self._has_hub = self._has_hub or glance.has_hub

    def lacks(self, glance: Glance) -> bool:
        """Say whether an event has a fact that outlives those events behind it that are silent about it."""
        return (glance.has_device and not self._has_device) or (glance.has_hub and not self._has_hub)

    def replaces(self, glance: Glance) -> bool:
        does, kinds = glance.does, self._kinds
        if does is Does.SUBSCRIPTION:
            return glance.about in self._subscriptions
        if does is Does.RESUME:
            return Does.CONNECT in kinds or Does.RESUME in kinds
        if does is Does.LEAVE and glance.has_expiry:
            return does in kinds and (Does.CONNECT in kinds or Does.RESUME in kinds)
        return does in kinds
