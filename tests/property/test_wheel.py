"""The wheel against a sorted list: nothing early, nothing lost, nothing twice, in order."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from iothub.engine.wheel import Timer, Wheel

START = 98765.4321
TICK = 0.1

spans = st.one_of(st.floats(-5, 0.5), st.floats(0, 20), st.floats(0, 1e4), st.floats(0, 1e7), st.floats(0, 2**32))
jumps = st.one_of(st.floats(-1, 0.3), st.floats(0, 20), st.floats(0, 1e4), st.floats(0, 1e8))


class WheelMachine(RuleBasedStateMachine):
    """Schedules, cancels and lets time pass, in steps of milliseconds and of years."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.latest = START
        self.wheel = Wheel(START)
        self.pending: dict[int, tuple[float, Timer]] = {}
        self.count = 0

    @rule(span=spans)
    def schedule(self, span: float) -> None:
        self.count += 1
        deadline = self.now + span
        self.pending[self.count] = (deadline, self.wheel.schedule(deadline, self.count))

    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        if self.pending:
            number = data.draw(st.sampled_from(list(self.pending)))
            _, timer = self.pending.pop(number)
            self.wheel.cancel(timer)
            assert not timer.is_pending()

    @rule(jump=jumps)
    def advance(self, jump: float) -> None:
        self.now += jump
        self.latest = max(self.latest, self.now)
        fired = [self.pending.pop(number) for number in self.wheel.advance(self.now)]

        assert all(deadline <= self.latest + 1e-6 for deadline, _ in fired)
        assert all(not timer.is_pending() for _, timer in fired)
        ticks = [timer.tick for _, timer in fired]
        assert ticks == sorted(ticks)
        assert all(deadline > self.latest - TICK - 1e-6 for deadline, _ in self.pending.values())

    @invariant()
    def nothing_is_lost(self) -> None:
        assert len(self.wheel) == len(self.pending)
        assert all(timer.is_pending() for _, timer in self.pending.values())


WheelMachine.TestCase.settings = settings(max_examples=50, stateful_step_count=30, deadline=None)
test_wheel_equals_the_reference = WheelMachine.TestCase
