"""What one hub may use of one count: granted by the ledger, a little more than needed where that is free, and requested when it is short.

Knows no Redis: a request is a `Question`, its answer a `Verdict`.

Theory. `granted` is what the ledger holds for this hub. While the sum over all hubs is within the limit, a hub that stays within its grant need not
ask, and may go on while the ledger does not answer. The sum is above the limit while more is in use than the limit allows: after a limit was lowered,
or when a hub returns that was paused while Redis lost its data. Then a unit that is freed here must not be used again without a request. A caller
that is short waits for the ledger's answer and, while other hubs hold more than they use, for those to give it back. Only then it is refused.

Invariant: what a request gives back is given up here before the request is sent: another hub may have it before the answer comes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from twisted.internet.defer import Deferred

SPARE = 8  # what a hub may hold more than it uses, and an eighth of that


@dataclass(frozen=True, slots=True)
class Question:
    """One count at one time: what exists, what is needed for those who wait, and what is wished beyond."""

    limit: int
    used: int
    needed: int
    wished: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """`granted` to this hub, held by the `others`, and what they do not use of it. `is_initialising`: nothing is given yet."""

    granted: int
    others: int
    spare: int
    is_initialising: bool


@dataclass(slots=True)
class Waiting:
    """A caller that needs `count` units. `until`: how long it waits for other hubs to give something back."""

    count: int
    until: float
    answer: Deferred[bool]
    was_asked: bool = False


class Grant:
    """Invariant: what is `wanted` elsewhere is given back with the next request; `others` is of the last answer."""

    __slots__ = (
        "_apply",
        "_measure",
        "granted",
        "is_asked",
        "is_eager",
        "is_fading",
        "is_wanted",
        "limit",
        "name",
        "others",
        "waiting",
    )

    def __init__(
        self,
        name: str,
        limit: int,
        measure: Callable[[], int],
        apply: Callable[[int], None] | None = None,
        *,
        is_fading: bool = False,
        is_eager: bool = False,
    ) -> None:
        """`measure` returns what is used, `apply` is called with what is granted.

        `is_fading`: what is used becomes less by itself. `is_eager`: callers cannot wait for units, so some must always be there.
        """
        self.name = name
        self.limit = limit
        self._measure = measure
        self._apply = apply
        self.is_fading = is_fading
        self.is_eager = is_eager
        self.granted = 0
        self.others = 0
        self.is_wanted = False
        self.is_asked = False
        self.waiting: list[Waiting] = []

    @property
    def used(self) -> int:
        return self._measure()

    def fits(self, count: int) -> bool:
        """Whether this many more are within what is granted, and within what the others' grants leave of the limit."""
        return self._measure() + count <= min(self.granted, self.limit - self.others)

    def close(self) -> None:
        """Nothing is used any more, nor will be."""
        self._measure, self._apply, self.is_eager, self.is_fading = _nothing, None, False, False

    @property
    def is_closed(self) -> bool:
        return self._measure is _nothing

    def question(self) -> Question:
        used = self._measure()
        self.is_asked = True
        for waiting in self.waiting:
            waiting.was_asked = True
        needed = used + sum(waiting.count for waiting in self.waiting)
        spare = 0 if self.is_closed else SPARE + used // SPARE
        if self.is_eager:
            needed = used + (1 if self.is_wanted else self._advance)
        self.is_wanted = False
        self._give_up(needed)
        return Question(self.limit, used, needed, needed + spare)

    def _give_up(self, needed: int) -> None:
        if self.granted > needed:
            self.granted = needed
            self.apply_granted()

    @property
    def is_running_out(self) -> bool:
        """Whether what is granted in advance is half used."""
        return self.is_eager and self._measure() + self._advance // 2 >= self.granted

    @property
    def _advance(self) -> int:
        return max(SPARE, self.limit // 20)

    def apply_verdict(self, verdict: Verdict, now: float) -> bool:
        """Apply an answer, and let waiting callers go on, each of which may take at once. Return whether another request is needed."""
        self.is_asked = False
        self.granted, self.others = verdict.granted, verdict.others
        self.apply_granted()
        waiting, self.waiting = self.waiting, []
        kept = []
        for each in waiting:
            if self.fits(each.count):
                each.answer.callback(True)
            elif not each.was_asked or verdict.is_initialising or (verdict.spare > 0 and now < each.until):
                kept.append(each)
            else:
                each.answer.callback(False)
        self.waiting = kept + self.waiting
        return bool(self.waiting)

    def apply_granted(self) -> None:
        """Report what is granted to the counting code."""
        if self._apply is not None:
            self._apply(min(self.granted, self.limit))

    def fail(self, error: Exception) -> None:
        """The ledger does not answer: fail the waiting callers."""
        self.is_asked = False
        waiting, self.waiting = self.waiting, []
        for each in waiting:
            each.answer.errback(error)


def _nothing() -> int:
    return 0
