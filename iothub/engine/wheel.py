# cython: annotation_typing=False
"""Coarse timers, a million of them: a hierarchical timer wheel with ticks of 100 ms.

Knows neither what its items are nor what time it is: `advance` gets the time.

Theory. Level 0 has a slot for each of the next 64 ticks, level 1 one for each of the next 64 * 64 ticks, and so on. A timer
sits on the level of the highest 6-bit digit in which its tick differs from the wheel's. When the wheel reaches the first
tick of a slot above level 0, the timers in it move down. So the first slot in use, looked for from level 0 upwards, is always
the next thing to do, and a jump of the clock costs only the slots in use, not the ticks in between.

    tick 70 seen from tick 3:  level 1, slot 1   (64..127)
    at tick 64 it moves to     level 0, slot 6

Invariants. Every timer's tick is at or after the wheel's. A timer knows its slot and its index there, so that it can leave in
O(1): the last one of the slot takes its place.
"""

from __future__ import annotations

from math import ceil, floor
from typing import Any

_TICKS_PER_SECOND = 10
_BITS = 6
_SLOTS = 64
_LEVELS = 7
_LAST_TICK = 0x3FF_FFFF_FFFF  # the last of 7 levels of 6 bits, in 13,900 years: "never"
_TOLERANCE = 1e-6  # ticks; a deadline that is a whole number of ticks but for rounding is one


class Timer:
    """One item until its deadline. `slot` is None once it is due or cancelled."""

    def __init__(self, item: Any, tick: int) -> None:
        self.item = item
        self.tick = tick
        self.slot: list[Timer] | None = None
        self.index = 0

    def is_pending(self) -> bool:
        return self.slot is not None


class Wheel:
    """Items by deadline, in seconds of whatever clock the caller uses; it never calls anything."""

    def __init__(self, now: float) -> None:
        self.origin = now
        self.tick = 0
        self.levels: list[list[list[Timer]]] = [[[] for _ in range(_SLOTS)] for _ in range(_LEVELS)]

    def __len__(self) -> int:
        """Return the number of pending timers. O(slots)."""
        return sum([len(slot) for level in self.levels for slot in level])

    def schedule(self, deadline: float, item: Any) -> Timer:
        """Have `item` returned by the first `advance` at or after `deadline`, at most one tick late. O(1)."""
        ticks = (deadline - self.origin) * _TICKS_PER_SECOND
        tick = _LAST_TICK if ticks >= _LAST_TICK else max(ceil(ticks - _TOLERANCE), self.tick)
        timer = Timer(item, tick)
        self._insert(timer)
        return timer

    def cancel(self, timer: Timer) -> None:
        """Forget the item of a timer. Does nothing when it is due or cancelled already. O(1)."""
        slot = timer.slot
        if slot is None:
            return
        last = slot.pop()
        if last is not timer:
            slot[timer.index] = last
            last.index = timer.index
        timer.slot = None
        timer.item = None

    def advance(self, now: float) -> list[Any]:
        """Return the items that are due, in the order of their ticks. What is returned can no longer be cancelled.

        O(items + slots in use that are passed); a clock that goes back changes nothing.
        """
        due: list[Any] = []
        target = max(floor((now - self.origin) * _TICKS_PER_SECOND + _TOLERANCE), self.tick)
        while self._take_slot(target, due):
            pass
        self.tick = target
        return due

    def _insert(self, timer: Timer) -> None:
        differing = (timer.tick ^ self.tick) >> _BITS
        level = 0
        while differing:
            differing >>= _BITS
            level += 1
        slot = self.levels[level][(timer.tick >> (_BITS * level)) & (_SLOTS - 1)]
        timer.slot = slot
        timer.index = len(slot)
        slot.append(timer)

    def _take_slot(self, target: int, due: list[Any]) -> bool:
        """Go to the first slot in use and empty it: its timers are due, or move down. False: there is none up to `target`."""
        for level in range(_LEVELS):
            shift = _BITS * level
            place = (self.tick >> shift) & (_SLOTS - 1)
            slots = self.levels[level]
            while place < _SLOTS and not slots[place]:
                place += 1
            if place == _SLOTS:
                continue
            begins = ((self.tick >> (shift + _BITS)) << (shift + _BITS)) + (place << shift)
            if begins > target:
                return False
            slot = slots[place]
            slots[place] = []
            self.tick = max(begins, self.tick)
            self._empty(slot, level, due)
            return True
        return False

    def _empty(self, slot: list[Timer], level: int, due: list[Any]) -> None:
        for timer in slot:
            if level:
                self._insert(timer)
            else:
                timer.slot = None
                due.append(timer.item)
                timer.item = None
