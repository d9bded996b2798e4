"""What one hub may use of one count: granted by the ledger, a little more than it needs where that is free, and asked for when it is short.

Knows no Redis: what is to be asked is a `Question`, what was answered a `Verdict`.

Theory. `granted` is what the ledger holds for this hub. Where the sum over all hubs is within the limit, a hub that stays within its grant needs to
ask nobody, and may go on when nobody can be asked. The sum is above the limit while more is in use than the limit allows: a hub comes back that was
paused while Redis lost its data, or a limit was lowered. Then a unit that is freed here is not this hub's to use again without asking. What a
question gives back is given up before it is asked: while the answer is under way another hub may have it already. Who goes short waits: for the
ledger's answer, and while other hubs hold more than they use, for those to give it back. Only then a refusal is a refusal.
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
    """`granted` to this hub, held by the `others`, and what they do not use of it. `is_settling`: nothing is given yet."""

    granted: int
    others: int
    spare: int
    is_settling: bool


@dataclass(slots=True)
class Waiting:
    """Somebody who needs `count` units. `until`: so long others may take to give something back."""

    count: int
    until: float
    answer: Deferred[bool]
    was_asked: bool = False


class Grant:
    """Invariant: what is `wanted` elsewhere is given back with the next question; `others` is as last heard."""

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
        """`measure` says what is used, `apply` hears what is granted.

        `is_fading`: what is used becomes less by itself. `is_eager`: nobody waits for units; some must always be there.
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
        """Whether so many more are within what is granted, and within what the others' grants leave of the limit."""
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
            self.obey()

    @property
    def is_running_out(self) -> bool:
        """Whether what is granted in advance is half used."""
        return self.is_eager and self._measure() + self._advance // 2 >= self.granted

    @property
    def _advance(self) -> int:
        return max(SPARE, self.limit // 20)

    def take(self, verdict: Verdict, now: float) -> bool:
        """Obey; answer those who waited, each of whom may take at once. Return whether somebody must be asked for again."""
        self.is_asked = False
        self.granted, self.others = verdict.granted, verdict.others
        self.obey()
        waiting, self.waiting = self.waiting, []
        kept = []
        for each in waiting:
            if self.fits(each.count):
                each.answer.callback(True)
            elif not each.was_asked or verdict.is_settling or (verdict.spare > 0 and now < each.until):
                kept.append(each)
            else:
                each.answer.callback(False)
        self.waiting = kept + self.waiting
        return bool(self.waiting)

    def obey(self) -> None:
        """Let whoever counts know what is granted."""
        if self._apply is not None:
            self._apply(min(self.granted, self.limit))

    def fail(self, error: Exception) -> None:
        """Nobody can be asked."""
        self.is_asked = False
        waiting, self.waiting = self.waiting, []
        for each in waiting:
            each.answer.errback(error)


def _nothing() -> int:
    return 0
