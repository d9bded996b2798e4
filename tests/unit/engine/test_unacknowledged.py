"""What is kept of shared groups' messages, by position: nothing else is in a slot of the ring, however far positions are apart."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

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
    kept.keep(1, first, "g")
    kept.keep(2, message(2), "h")

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
        kept.keep(position, message(position), "g")
        if position % 3 == 0:
            base += 1
            assert kept.remove(base) is not None

    assert payloads(kept) == [(position, "g") for position in range(base + 1, 5 * SLOTS)]


def test_unacknowledged_position_that_is_not_kept_has_not_what_another_one_has() -> None:
    """Of a session with plain subscriptions, too, positions are any distance apart."""
    kept = Unacknowledged()
    kept.keep(5, message(5), "g")
    for other in (5 + SLOTS, 5 + 2 * SLOTS, 5 - SLOTS, 4, 6):
        assert kept.group_of(other) is None
        assert kept.remove(other) is None

    kept.keep(5 + 3 * SLOTS, message(6), "g")

    assert payloads(kept) == [(5, "g"), (6, "g")]
    assert kept.remove(5 + SLOTS) is None
    assert kept.count == 2


def test_client_that_leaves_an_old_message_open_makes_no_large_ring() -> None:
    """Each of the others is acknowledged at once; a ring over all positions would have 65,536 slots for two messages."""
    kept = Unacknowledged()
    kept.keep(1, message(1), "g")
    for position in range(2, 60_000):
        kept.keep(position, message(position), "h")
        if position != 30_000:
            assert kept.remove(position) is not None

    assert kept.size == SLOTS
    assert payloads(kept) == [(1, "g"), (30_000, "h")]
    assert (kept.group_of(1), kept.group_of(2), kept.group_of(30_000)) == ("g", None, "h")
    assert [kept.remove(position) is not None for position in (1, 1, 30_000, 30_000)] == [True, False, True, False]
    assert kept.count == 0


@given(
    st.lists(
        st.one_of(st.tuples(st.just(True), st.integers(1, 300)), st.tuples(st.just(False), st.integers(0, 10_000)))
    )
)
def test_unacknowledged_is_a_dictionary_by_position(steps: list[tuple[bool, int]]) -> None:
    """Positions any distance apart, removed in any order."""
    kept, model, last = Unacknowledged(), dict[int, int](), 0
    for is_kept, number in steps:
        if is_kept:
            last += number
            model[last] = last
            kept.keep(last, message(last), last)
            continue
        position = (number, min(model, default=0), max(model, default=0))[number % 3]
        assert kept.group_of(position) == model.get(position)
        removed = kept.remove(position)
        assert (None if removed is None else int(removed.payload)) == model.pop(position, None)
        assert kept.count == len(model)
    assert [group for _, group in kept.in_order()] == sorted(model)
