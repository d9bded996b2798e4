"""The quota ledger's scripts in a fake Redis beside their twins: the same calls at the same times get the same answers."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from iothub_services.quota.names import Quota
from iothub_services.quota.shared import scripts
from iothub_services.quota.shared.embedded import KEYS
from iothub_services.quota.shared.keys import count_name
from iothub_services.quota.usage import UsageKey
from iothub_services.redis.calls import Argument, Reply, Script
from tests.support.in_process.ledgers import TwinLedger
from tests.support.night import by_day
from tests.support.servers.lua_redis import LuaRedis

ALL_HUBS = ("1-a.1", "1-a.2", "2-b.1", "3-c.1")
HUBS = st.sampled_from(ALL_HUBS)
NAMES = st.lists(
    st.sampled_from(
        [count_name(7, Quota.CONNECTIONS), count_name(7, Quota.CONNECTS, 1), count_name(8, Quota.CONNECTIONS)]
    ),
    min_size=1,
    max_size=3,
    unique=True,
)
UNITS = st.integers(0, 30)
RATES = st.floats(0.001, 500.0)
DAY = UsageKey(7, "", "publish_messages", 86_400)
START = 1_800_000_000


class BothLedgers(RuleBasedStateMachine):
    """Each hub numbers its calls, mostly as it should."""

    @initialize()
    def begin(self) -> None:
        self.lua, self.twin = LuaRedis(), TwinLedger()
        self.numbers: dict[str, int] = {}
        self.let_pass(START * 1000)
        for hub in ALL_HUBS:
            self.enter(hub, was_there=False)
        self.live(1_000, 4)

    @rule(ms=st.sampled_from([1, 100, 900]), times=st.integers(1, 4))
    def live(self, ms: int, times: int) -> None:
        """Time passes as it does: everybody takes a turn."""
        for _ in range(times):
            self.let_pass(ms)
            for hub in self.lua.names(KEYS.hubs):
                self.turn(hub)

    @rule(ms=st.sampled_from([0, 1, 40, 1_999, 2_001, 3_000, 10_001, 3_600_001, 90_000_000]))
    def let_pass(self, ms: int) -> None:
        self.lua.now_us += ms * 1000
        self.twin.now_us += ms * 1000

    @rule(ms=st.sampled_from([50, 2_500, 7_200_000]))
    def set_clock_back(self, ms: int) -> None:
        self.let_pass(-ms)

    @rule(hub=HUBS, was_there=st.booleans())
    def enter(self, hub: str, *, was_there: bool) -> None:
        self.numbers[hub] = 0
        self.both(scripts.ENTER, [], hub, 0, scripts.LEASE_MS, scripts.SETTLE_MS, int(was_there))

    @rule(ms=st.sampled_from([1_999, 9_000, 19_000]))
    def fall_silent(self, ms: int) -> None:
        """The first hub alone takes turns."""
        for _ in range(ms // 1_000):
            self.let_pass(1_000)
            self.turn(ALL_HUBS[0])

    @rule(hub=HUBS)
    def leave(self, hub: str) -> None:
        self.both(scripts.LEAVE, [], hub, 0, scripts.LEASE_MS)

    @rule(hub=HUBS, start=st.sampled_from(["1-a.", "1-", "9-"]))
    def claim(self, hub: str, start: str) -> None:
        self.ask(scripts.CLAIM, [], hub, start)

    @rule(hub=HUBS)
    def turn(self, hub: str) -> None:
        self.ask(scripts.TURN, [KEYS.wanted], hub, scripts.WANTED_MS)

    @rule(hub=HUBS)
    def miss_a_call(self, hub: str) -> None:
        """What was said before is not known: a number is missing."""
        self.numbers[hub] = self.numbers.get(hub, 0) + 1

    @rule(hub=HUBS, names=NAMES, limit=st.sampled_from([5, 30, 200]), used=UNITS, more=UNITS, spare=UNITS)
    def reserve(self, hub: str, names: list[str], limit: int, used: int, more: int, spare: int) -> None:
        questions = [part for name in names for part in (name, limit, used, used + more, used + more + spare)]
        keys = [KEYS.wanted, *map(KEYS.count, names)]
        self.ask(scripts.RESERVE, keys, hub, scripts.WANTED_MS, scripts.KEPT_S, *questions)

    @rule(hub=HUBS, names=NAMES, limit=st.integers(1, 400), wish=st.one_of(RATES, st.just(-1.0)), held=RATES)
    def share(self, hub: str, names: list[str], limit: int, wish: float, held: float) -> None:
        wishes = [part for name in names for part in (name, limit, f"{wish:.6f}", f"{held:.6f}")]
        self.ask(scripts.SHARE, [KEYS.wanted, *map(KEYS.rate, names)], hub, scripts.KEPT_S, *wishes)

    @rule(
        hub=HUBS,
        used=st.sampled_from([0, 5, 40, 10**12]),
        end=st.sampled_from([-10, 10, 86_400, 900_000]),
        is_anew=st.booleans(),
        start=st.sampled_from([START, START + 86_400]),
    )
    def add_up(self, hub: str, used: int, end: int, start: int, *, is_anew: bool) -> None:
        key = KEYS.window(DAY, start)
        self.ask(scripts.ADD_UP, [key], hub, hub.partition(".")[0], used, start + end, int(is_anew))

    @rule()
    def lose_everything(self) -> None:
        self.lua.flush()
        self.twin.flush()

    def ask(self, script: Script, keys: list[str], hub: str, *arguments: Argument) -> None:
        self.numbers[hub] = self.numbers.get(hub, 0) + 1
        said = self.both(script, keys, hub, self.numbers[hub], scripts.LEASE_MS, *arguments)
        if said in (scripts.LAPSED, [scripts.LAPSED]):
            self.enter(hub, was_there=False)

    def both(self, script: Script, keys: list[str], *arguments: Argument) -> Reply:
        whole = [KEYS.hubs, KEYS.state, *keys]
        said: Reply = self.lua.eval(script, len(whole), *whole, *arguments)
        assert self.twin.eval(script, len(whole), *whole, *arguments) == said
        assert self.twin.names(KEYS.hubs) == self.lua.names(KEYS.hubs)
        return said


BothLedgers.TestCase.settings = settings(max_examples=by_day(75, 5_000), stateful_step_count=30, deadline=None)
TestBothLedgers = BothLedgers.TestCase
