"""Message ids: 128 bit, unique, and in the order of time whatever the wall clock does (D15)."""

from __future__ import annotations

import struct

from iothub.base.ids import RUN, MessageIds
from iothub.testing.clock import ManualClock


def _parts(message_id: bytes) -> tuple[int, int, int, int]:
    micros, node, incarnation, sequence = struct.unpack(">QHIH", message_id)
    return micros, node, incarnation, sequence


def test_id_carries_time_node_incarnation_and_sequence() -> None:
    """64 bits of microseconds, 16 of node, 32 of worker incarnation, 16 of sequence."""
    clock = ManualClock()
    ids = MessageIds(clock, node=7, incarnation=0xDEADBEEF)

    first, second = ids.allocate(), ids.allocate()

    micros = int(clock.wall() * 1_000_000)
    assert len(first) == 16
    assert _parts(first) == (micros, 7, 0xDEADBEEF, 0)
    assert _parts(second) == (micros, 7, 0xDEADBEEF, 1)


def test_ids_rise_while_the_clock_stands_still() -> None:
    """A full sequence borrows the next microsecond."""
    ids = MessageIds(ManualClock(), incarnation=1)

    allocated = [ids.allocate() for _ in range(66_000)]

    assert allocated == sorted(set(allocated))


def test_ids_of_a_run_are_between_those_before_and_behind_it() -> None:
    """Also where a run does not fit into the sequence any more."""
    ids = MessageIds(ManualClock(), incarnation=1)
    allocated = []

    for _ in range(1_200):
        head, last = ids.allocate_run()
        allocated += [head + bytes((last + number,)) for number in range(RUN)]
        allocated.append(ids.allocate())

    assert allocated == sorted(set(allocated))


def test_ids_rise_when_the_clock_is_set_back() -> None:
    """The hybrid clock never follows it back."""
    clock = ManualClock()
    ids = MessageIds(clock, incarnation=1)
    before = ids.allocate()

    clock.jump_wall(-3600)

    assert ids.allocate() > before


def test_an_observed_id_moves_the_clock() -> None:
    """What is allocated after a message was seen sorts behind it."""
    clock = ManualClock()
    ahead = ManualClock()
    ahead.jump_wall(5)
    theirs = MessageIds(ahead, incarnation=2).allocate()
    ids = MessageIds(clock, incarnation=1)

    ids.observe(theirs)

    assert _parts(ids.allocate())[0] >= _parts(theirs)[0]


def test_two_hubs_never_allocate_the_same() -> None:
    """The incarnation is drawn anew at each start."""
    clock = ManualClock()

    assert MessageIds(clock).allocate() != MessageIds(clock).allocate()
