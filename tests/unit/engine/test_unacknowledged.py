"""What is kept of shared groups' messages, by position: nothing else is in a slot of the ring, however far positions are apart."""

from __future__ import annotations

from iothub.engine.message import Message
from iothub.engine.unacknowledged import Unacknowledged

SLOTS = 32  # of a new ring


def message(number: int) -> Message:
    return Message(b"a", b"%d" % number)


def payloads(kept: Unacknowledged) -> list[tuple[int, str]]:
    """Return what is kept, in order."""
    return [(int(each.payload), group) for each, group in kept.in_order()]


def test_unacknowledged_message_has_its_group_until_it_is_removed() -> None:
    kept = Unacknowledged()
    first = message(1)
    kept.keep(1, 0, first, "g")
    kept.keep(2, 0, message(2), "h")

    assert (kept.count, kept.group_of(1), kept.group_of(2)) == (2, "g", "h")
    assert kept.remove(1) is first
    assert (kept.count, kept.group_of(1), payloads(kept)) == (1, None, [(2, "h")])
    assert kept.remove(1) is None
    assert kept.count == 1


def test_unacknowledged_messages_keep_their_order_when_the_ring_wraps_and_grows() -> None:
    """The client acknowledges the first ones: what follows takes their slots, then more slots are needed."""
    kept = Unacknowledged()
    base = 0
    for position in range(1, 5 * SLOTS):
        kept.keep(position, base, message(position), "g")
        if position % 3 == 0:
            base += 1
            assert kept.remove(base) is not None

    assert payloads(kept) == [(position, "g") for position in range(base + 1, 5 * SLOTS)]


def test_unacknowledged_position_that_is_not_kept_has_not_what_another_one_has() -> None:
    """Of a session with plain subscriptions, too, positions are any distance apart."""
    kept = Unacknowledged()
    kept.keep(5, 0, message(5), "g")
    for other in (5 + SLOTS, 5 + 2 * SLOTS, 5 - SLOTS, 4, 6):
        assert kept.group_of(other) is None
        assert kept.remove(other) is None

    kept.keep(5 + 3 * SLOTS, 0, message(6), "g")

    assert payloads(kept) == [(5, "g"), (6, "g")]
    assert kept.remove(5 + SLOTS) is None
    assert kept.count == 2
