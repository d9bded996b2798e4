"""Which of a session's events its state depends on: those that the fold would refuse, and those that later ones replace, are left out.

Knows the order of events, not what they say. The fold of what is needed is the fold of everything: a property test holds that, and
`iothub.records.state.fold` stays the only one that makes a state.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from iothub.records.state import SessionState
from iothub_spark.transforms.event_summary import Does, EventSummary


def needed(state: SessionState | None, summaries: Iterable[EventSummary]) -> list[EventSummary]:
    """Return the events that must be folded over `state`, in their order. O(events)."""
    return _without_replaced(_accepted(state, summaries))


def _accepted(state: SessionState | None, summaries: Iterable[EventSummary]) -> list[EventSummary]:
    """Return what the fold accepts, from the last beginning of an incarnation on: nothing before it is left in the state."""
    is_known, is_live = state is not None, state is not None and not state.is_ended
    epoch, offset = (0, 0) if state is None else (state.epoch, state.offset)
    found: list[EventSummary] = []
    for summary in summaries:
        does = summary.does
        if summary.epoch == 0 or summary.offset <= offset:
            continue
        if does is Does.CREATE:
            if not is_known or summary.epoch > epoch:
                found = [summary]
                is_known = is_live = True
                epoch = summary.epoch
            continue
        if not is_live or summary.epoch < epoch or does is Does.NOTHING:
            continue
        found.append(summary)
        epoch = summary.epoch
        is_live = does is not Does.END
    return found


def _without_replaced(found: Sequence[EventSummary]) -> list[EventSummary]:
    """Leave out, from the last to the first, what a later event says anew. The last one stays: its place and epoch are the state's.

    A fact outlives events behind it that are silent about it: a device, a hub. Whoever connects says all that resuming says.
    """
    kept: list[EventSummary] = []
    said: set[object] = set()  # by later events: their kinds, and of subscriptions which ones
    has_device = has_hub = False
    is_over = bool(found) and found[-1].does is Does.END
    for summary in reversed(found):
        does = summary.does
        what = summary.about if does is Does.SUBSCRIPTION else does
        is_replaced = (is_over or what in said) and (not summary.has_expiry or is_over or Does.RESUME in said)
        is_alone = (summary.has_device and not has_device) or (summary.has_hub and not has_hub)
        if not is_replaced or is_alone or not kept or does is Does.CREATE:
            kept.append(summary)
            has_device = has_device or summary.has_device
            has_hub = has_hub or summary.has_hub
        said.add(what)
        if does is Does.CONNECT:
            said.add(Does.RESUME)
    kept.reverse()
    return kept
