"""Reservations of three hubs over one ledger, with kills, pauses and losses of Redis: never above the limit unless a lease ran out."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from twisted.internet.defer import Deferred

from iothub_services.quota.names import Quota
from iothub_services.quota.shared.service import Mode
from iothub_services.quota.shared.tenant import SharedTenant
from tests.support.shared_quota import HubHalf, World, turns

LIMIT = 12
HUBS = st.integers(0, 2)


class Hubs(RuleBasedStateMachine):
    """Each hub has clients and lets in whom its ledger lets in. A hub that is paused does nothing, and time goes on.

    `excused`: a hub was paused for longer than its lease, so others may have got what it holds. It is over when everything fits again.
    """

    @initialize()
    def begin(self) -> None:
        self.world = World()
        self.hubs = [self.born(number) for number in range(3)]
        self.is_excused = False
        self.pass_time([0, 1, 2], 4.0, 0.5)

    def teardown(self) -> None:
        if hasattr(self, "hubs"):
            self.everything_is_well_again()

    def born(self, number: int) -> tuple[HubHalf, SharedTenant]:
        half = HubHalf(self.world, f"hub{number}")
        return half, half.tenant(f"connections={LIMIT}")

    def pass_time(self, who: list[int], seconds: float, step_s: float = 0.1) -> None:
        turns(self.world, *(self.hubs[number][0] for number in who), seconds=seconds, step_s=step_s)

    @property
    def used(self) -> int:
        return sum(tenant.ledger.used(Quota.CONNECTIONS) for _, tenant in self.hubs)

    @rule(number=HUBS, count=st.integers(1, 6))
    def connect(self, number: int, count: int) -> None:
        half, tenant = self.hubs[number]
        for _ in range(count):
            half.enter(tenant).addErrback(lambda failure: None)

    @rule(number=HUBS, count=st.integers(1, 6))
    def leave(self, number: int, count: int) -> None:
        ledger = self.hubs[number][1].ledger
        ledger.release(Quota.CONNECTIONS, min(count, ledger.used(Quota.CONNECTIONS)))

    @rule(seconds=st.sampled_from([0.1, 0.3, 1.2]))
    def go_on(self, seconds: float) -> None:
        self.pass_time([0, 1, 2], seconds)

    @rule(number=HUBS)
    def kill(self, number: int) -> None:
        """Its clients are gone; a successor begins at once."""
        self.hubs[number] = self.born(number)

    @rule(number=HUBS, seconds=st.sampled_from([0.5, 8.0, 15.0]))
    def pause(self, number: int, seconds: float) -> None:
        self.is_excused |= seconds > 9.0
        self.pass_time([other for other in range(3) if other != number], seconds, 0.5)

    @rule()
    def flush(self) -> None:
        self.world.flush()

    @rule()
    def fall_back(self) -> None:
        """A fail-over to a replica that is a moment behind."""
        before = {key: dict(value) for key, value in self.world.redis.keys.items()}
        self.pass_time([0, 1, 2], 0.1)
        self.connect(0, 2)
        self.connect(1, 2)
        self.world.redis.keys = before

    @rule(seconds=st.sampled_from([0.2, 20.0]))
    def lose_redis(self, seconds: float) -> None:
        self.world.is_away = True
        self.pass_time([0, 1, 2], seconds, max(seconds / 4, 0.1))
        self.connect(2, 3)
        self.world.is_away = False

    @precondition(lambda self: hasattr(self, "hubs"))
    @invariant()
    def limit_holds(self) -> None:
        if self.used <= LIMIT:
            return
        assert self.is_excused, [tenant.ledger.used(Quota.CONNECTIONS) for _, tenant in self.hubs]

    def everything_is_well_again(self) -> None:
        """Within 30 s the hubs are back, nothing is granted beyond the limit, and what is free can be had at any hub."""
        self.pass_time([0, 1, 2], 15.0, 0.5)
        assert [half.shared.mode for half, _ in self.hubs] == [Mode.SHARED] * 3
        for number in range(3):
            free = LIMIT - self.used
            outcomes: list[bool] = []
            half, tenant = self.hubs[number]
            answers: list[Deferred[bool]] = [half.enter(tenant) for _ in range(LIMIT)]
            for answer in answers:
                answer.addCallback(outcomes.append)
            self.pass_time([0, 1, 2], 2.0, 0.2)
            assert sum(outcomes) == max(free, 0)
            tenant.ledger.release(Quota.CONNECTIONS, sum(outcomes))
            self.pass_time([0, 1, 2], 0.4, 0.2)


Hubs.TestCase.settings = settings(max_examples=25, stateful_step_count=20, deadline=None)
TestHubs = Hubs.TestCase
