"""Places of the session log, as hubs compare them: for each partition the offset up to which something holds.

Knows no log and no event. The same values as `iothub_services.events.port.Offsets`: what is missing at the end counts as 0.
"""

from __future__ import annotations

from itertools import zip_longest

Offsets = tuple[int, ...]

NOWHERE: Offsets = ()


def covers(place: Offsets, other: Offsets) -> bool:
    """Tell whether a place is at or behind another one, in every partition."""
    return all(offset >= least for offset, least in zip_longest(place, other, fillvalue=0))


def joined(place: Offsets, other: Offsets) -> Offsets:
    """Return the first place that covers both."""
    return tuple(max(pair) for pair in zip_longest(place, other, fillvalue=0))
