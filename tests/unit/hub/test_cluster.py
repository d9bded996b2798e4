"""A hub among others: until when it may route, what it waits for, and what it does when another one is gone or has overtaken it.

Of `iothub.hub.cluster`, and of `iothub.hub.heartbeat` with the same `iothub.hub.cluster_parts`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock as Reactor

from iothub.base.errors import ConfigError, ConflictError, ExpelledError, UnavailableError
from iothub.base.reasons import Reason
from iothub.hub import cluster
from iothub.hub.cluster import ACKNOWLEDGED_S, CATCH_UP_S, HubCluster
from iothub.hub.wait_for_servers import Waiting
from iothub.peers.link import SILENT_S
from iothub.peers.membership import GO_ON_S, LOOK_S, UNLINKED_S
from iothub.peers.ports import PeerId
from iothub.testing.clock import ManualClock
from iothub_services.damaged import uncounted
from iothub_services.events.follower import ALONE_S, PERIOD_S
from iothub_services.events.port import Offsets
from iothub_services.sessions.port import HERE
from iothub_tenants.accounts import hubs
from iothub_tenants.accounts.database import sqlite_url
from iothub_tenants.accounts.hubs import CUT_OFF, EVICTED, NOBODY, SILENT, HubRow
from iothub_tenants.accounts.store import AccountStore, create_schema
from iothub_tenants.background.membership import GONE_S, Members, Standing
from iothub_tenants.background.remote_sessions import RemoteSessions
from tests.support.control_harness import now


class Follower:
    """Reads when the test says so."""

    def __init__(
        self,
        _log: object,
        after: object,
        apply: Callable[..., Any],
        _call: object,
        clock: ManualClock,
        **listeners: Any,
    ) -> None:
        self.after, self.apply, self.clock, self.on_known, self.on_alarm = (
            after,
            apply,
            clock,
            listeners["on_known"],
            listeners["on_alarm"],
        )
        self.known_at, self.period_s = clock.monotonic(), 0.0
        self.waiting: list[Deferred[None]] = []
        self.is_closed = False
        self.hurried = 0

    def hurry(self) -> None:
        self.hurried += 1

    def start(self) -> None:
        """The test is the thread."""

    def set_period(self, seconds: float) -> None:
        self.period_s = seconds

    def catch_up(self) -> Deferred[None]:
        self.waiting.append(Deferred())
        return self.waiting[-1]

    def round(self) -> None:
        self.known_at = self.clock.monotonic()
        self.on_known(self.known_at)
        waiting, self.waiting = self.waiting, []
        for answer in waiting:
            answer.callback(None)

    def close(self, _timeout_s: float) -> None:
        self.is_closed = True


class Held:
    """A session with a client."""

    def __init__(self) -> None:
        self.connection, self.epoch = object(), 5


class Links:
    """Notes what the cluster says of its own hub and of others. `are_down`: no other hub is linked; `silent_s`: since one was heard of."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.seen: list[tuple[int, str]] = []
        self.peers: list[PeerId] = []
        self.is_closed = self.are_down = False
        self.silent_s = 0.0
        self.unacknowledged_bytes = 0
        self.calls: tuple[Callable[[], None], ...] = ()

    def open(self) -> str:
        return "hub-1:7883"

    def begin(self, incarnation: int, *calls: Callable[[], None]) -> Links:
        """`calls`: at each tick, and when a hub says that this one is gone."""
        self.begun.append(incarnation)
        self.calls = calls
        return self

    def members(self, rows: Sequence[HubRow]) -> None:
        self.seen = [(row.number, row.address) for row in rows]
        self.peers = [PeerId(row.number, row.incarnation) for row in rows]

    def up(self) -> list[int]:
        return [] if self.are_down else [number for number, _ in self.seen]

    def unlinked(self) -> bool:
        return self.are_down and bool(self.seen)

    def judge_gone(self, rows: Sequence[HubRow]) -> None: ...

    def status(self) -> list[Any]:
        return [
            SimpleNamespace(peer=peer, state="up", unacknowledged_bytes=self.unacknowledged_bytes)
            for peer in self.linked()
        ]

    def close(self) -> None:
        self.is_closed = True

    # as `iothub.peers.membership.MemberLinks`

    def linked(self) -> list[PeerId]:
        return [] if self.are_down else self.peers

    def is_linked(self, peer: PeerId) -> bool:
        return peer in self.linked()

    def down_for(self, _peer: PeerId) -> float:
        return math.inf if self.are_down else 0.0

    def evidence_age(self, _peer: PeerId) -> float:
        return math.inf if self.are_down else self.silent_s

    def drop(self, _peer: PeerId) -> None: ...

    mute = unmute = expel = drop


class Places:
    """What the others know of the log. `waiting`: who waits for them, for which tenant and place; `knows_all`: they know it already."""

    def __init__(self) -> None:
        self.applied: list[Offsets] = []
        self.waiting: list[tuple[int, Offsets, Callable[[], None]]] = []
        self.knows_all = False

    def note_applied(self, place: Offsets) -> None:
        self.applied.append(place)

    def await_known(self, tenant_id: int, place: Offsets, on_done: Callable[[], None]) -> bool:
        if not self.knows_all:
            self.waiting.append((tenant_id, place, on_done))
        return not self.knows_all


class Node:
    """What `HubCluster` works with: hub number 1."""

    def __init__(self, store: AccountStore) -> None:
        self.settings: Any = SimpleNamespace(
            node=SimpleNamespace(number=1, name="one", workers=1),
            queues=SimpleNamespace(driver="hbase", choices=()),
            hbase=SimpleNamespace(thrift=("here:9090",)),
        )
        self.accounts, self.clock = store, ManualClock()
        self.boot_clock = self.clock
        self.damaged = uncounted
        self.reactor: Any = cast("Any", Reactor())
        self.reactor.callFromThread = lambda call: call()
        self.notes: list[int] = []
        self.data_dir = SimpleNamespace(
            worker=0,
            read_member=lambda: None,
            write_member=self.notes.append,
            path=Path("/nowhere"),
            queues=Path("/nowhere/queues.db"),
        )
        self.states = SimpleNamespace(states_of=lambda keys: [f"state of {key}" for key in keys])
        self.closed: list[tuple[object, Reason]] = []
        turn = SimpleNamespace(held_at=math.inf)
        self.guards: list[Callable[[], bool] | None] = []
        self.plane = SimpleNamespace(
            turn=turn,
            answers=SimpleNamespace(guard=self.guards.append),
            hold_publishers_from=partial(setattr, turn, "held_at"),
            close=lambda connection, reason: self.closed.append((connection, reason)),
        )
        self.shared: list[bool] = []
        self.block_source = SimpleNamespace(share=self.shared.append)
        self.remote_sessions = RemoteSessions(
            cast("Any", SimpleNamespace(brokers=[])), cast("Any", None), cast("Any", self.run), lambda: "1.1", 1
        )
        self.remote = lambda: self.remote_sessions
        self.alarms: list[tuple[str, str]] = []
        self.store_alarms = lambda word, text: self.alarms.append((word, text))
        self.followed_log = lambda: cast("Any", None)
        self.waiting = Waiting(cast("Any", self.run), cast("Any", self.pause))
        self.members = Members(store, cast("Any", self.run), self.clock, 1, "one")
        self.links: Links | None = Links()
        self.known = Places()
        self.places = lambda: None if self.links is None else self.known
        self.replaced: list[ConflictError] = []  # ExpelledError, too
        self.on_replaced = self.replaced.append
        self.stores = HubCluster(cast("Any", self))

    async def run(self, _name: str, call: Callable[..., Any], *args: Any) -> Any:
        return call(*args)

    def pause(self, seconds: float) -> Deferred[None]:
        pause: Deferred[None] = Deferred()
        self.reactor.callLater(seconds, pause.callback, None)
        return pause

    def pass_time(self, seconds: float, *living: Members) -> None:
        for _ in range(int(seconds * 10)):
            self.clock.advance(0.1)
            for member in living:
                now(member.refresh())
            self.reactor.advance(0.1)

    @property
    def follower(self) -> Follower:
        return cast("Follower", self.stores._follower)

    def begin(self) -> list[object]:
        """Join and open; the list is not empty when the listeners may be opened."""
        now(self.stores.join())
        opened: list[object] = []
        Deferred.fromCoroutine(self.stores.open((7,))).addBoth(opened.append)
        return opened


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    monkeypatch.setattr(cluster, "Follower", Follower)
    url = sqlite_url(tmp_path / "accounts.db")
    create_schema(url)
    store = AccountStore(url)
    yield Node(store)
    store.close()


def other(node: Node, known: int | None = None) -> Members:
    """Hub 2, which has joined and is up. `known`: it is the next incarnation after this one."""
    made = Members(node.accounts, cast("Any", node.run), node.clock, 2, "two")
    now(made.join(known, cast("Any", node.pause), "hub-2:7883"))
    assert hubs.set_up(node.accounts, 2, made.incarnation, hubs.read(node.accounts).version)
    return made


def kill(node: Node) -> None:
    """Let the other hub's heartbeat and link stand still until this one goes on without it."""
    assert node.links is not None
    node.links.are_down = True
    node.pass_time(GONE_S + GO_ON_S + 3)


def rows(node: Node) -> list[HubRow]:
    return hubs.read(node.accounts).rows


def test_hub_that_is_alone_waits_for_nothing(node: Node) -> None:
    """It opens at once; it may route as long as it has looked for others."""
    node.links = None
    assert node.begin() == [None]

    assert node.stores.is_alone
    assert node.stores.settle(7, (1,)) is None
    assert node.plane.turn.held_at == node.clock.monotonic() + LOOK_S
    assert (node.follower.after, node.follower.period_s, node.shared[-1]) == ((7,), ALONE_S, False)
    place = node.stores.place(5)
    assert place is not None
    assert (place.holder, place.logged_epoch) == (HERE, 5)
    assert node.notes == [node.stores.members.incarnation]
    assert node.members.signature() == f"1.{node.stores.members.incarnation}"


def test_hub_opens_when_it_is_linked_to_the_others_and_has_the_log(node: Node) -> None:
    """Both, and no sooner."""
    two, links = other(node), node.links
    assert links is not None
    links.are_down = True
    opened = node.begin()
    node.pass_time(3, two)
    assert opened == node.follower.waiting == []
    links.are_down = False
    node.pass_time(0.2, two)
    assert (opened, len(node.follower.waiting)) == ([], 1)

    node.follower.round()

    assert opened == [None]
    assert (node.follower.period_s, node.shared[-1]) == (PERIOD_S, True)


def test_hub_that_is_linked_is_not_alone_before_it_has_seen_the_others_row(node: Node) -> None:
    """A hub that joins serves its clients as soon as it is linked; here its events are followed by then."""
    node.begin()
    node.follower.round()
    assert node.stores.is_alone
    assert node.links is not None

    node.links.seen = [(2, "hub-2:7883")]
    node.stores.peers_changed()
    assert not node.stores.is_alone
    assert (node.follower.period_s, node.shared[-1]) == (PERIOD_S, True)

    node.links.seen = []
    node.clock.advance(0.1)
    node.stores.peers_changed()
    assert not node.stores.is_alone  # what it has said last is not known yet
    node.follower.round()
    assert node.stores.is_alone


def test_publishers_go_on_while_the_others_are_heard_of_or_their_heartbeats_seen(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of the two is enough; without both the others may not wait for this hub any more."""
    two, links = other(node), node.links
    assert links is not None
    node.begin()
    node.pass_time(1.5, two)
    node.follower.round()
    assert node.stores.held_back == ""

    monkeypatch.setattr(node.stores.members, "refresh", failing_look)
    for _ in range(5):
        node.pass_time(1)
        assert node.plane.turn.held_at > node.clock.monotonic()
    links.are_down = True
    node.pass_time(2.5)
    assert node.plane.turn.held_at <= node.clock.monotonic()


def test_hub_that_was_held_reads_the_log_before_it_goes_on(node: Node) -> None:
    """It may have been frozen, and the others have acknowledged subscriptions without it."""
    two = other(node)
    node.begin()
    node.pass_time(1.5, two)
    node.follower.round()
    assert node.plane.turn.held_at > node.clock.monotonic()

    node.clock.advance(8)
    node.pass_time(1.5, two)
    assert node.plane.turn.held_at <= node.clock.monotonic()
    assert node.follower.hurried == 1
    assert node.stores.held_back == ("the session log could not be read up to its end for 7 s, and publishers wait")
    node.follower.on_alarm("follower_failing", "no answer")
    assert node.stores.held_back == "no answer"

    node.follower.round()
    assert node.plane.turn.held_at > node.clock.monotonic()
    assert node.stores.held_back == ""


def test_hub_that_cannot_see_the_others_says_so(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """Alone as it may be: it does not know."""
    node.begin()
    node.follower.round()
    monkeypatch.setattr(node.stores.members, "refresh", failing_look)

    node.pass_time(8)

    assert node.stores.held_back == (
        "the accounts are away: for 5 s nobody knows whether other hubs are there, and publishers wait"
    )


async def failing_look(**_how: object) -> None:
    raise UnavailableError("the accounts are away")


def test_start_waits_visibly_for_a_log_that_cannot_be_followed(node: Node) -> None:
    """With a reason; it goes on when the log is there again, and opens when it has its heartbeat again."""
    two = other(node)
    opened = node.begin()
    node.pass_time(0.5 + CATCH_UP_S + 0.2, two)
    assert (opened, node.waiting.reason) == (
        [],
        "waiting for the session log: the session log could not be followed in time",
    )

    node.follower.waiting.clear()  # what was given up
    node.pass_time(1.5, two)
    node.follower.round()

    assert (opened, node.waiting.reason) == ([], "")

    node.pass_time(2.5, two)
    node.follower.round()
    assert (opened, node.waiting.reason) == ([None], "")


def test_start_that_a_store_holds_up_is_silent_until_it_goes_on(node: Node) -> None:
    """So another hub takes over the sessions of its earlier run. It sees the others meanwhile, and opens when they have seen it again."""
    two = other(node)
    peers, answers = now(node.stores.join()), [UnavailableError("away")] * 15

    async def work() -> None:
        if answers:
            raise answers.pop()

    def heartbeat() -> int:
        return next(row.heartbeat for row in rows(node) if row.number == 1)

    Deferred.fromCoroutine(node.waiting.until_loaded("the stores", work))
    before = heartbeat()
    node.pass_time(GONE_S + 2, two)
    assert heartbeat() == before
    two.note_standing({1: Standing(GONE_S, is_silent=True)})
    assert now(two.take_over()) == {frozenset({1}): GONE_S}
    assert peers.joined() == {2}

    node.pass_time(5, two)
    opened: list[object] = []
    Deferred.fromCoroutine(node.stores.open((7,))).addBoth(opened.append)
    node.pass_time(2, two)
    assert rows(node)[0].successor == NOBODY
    node.follower.round()
    assert opened == [None]
    assert rows(node)[0].state == "up"


def test_start_that_is_silent_is_taken_over_from_and_may_go_on(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is due for the sessions of its earlier run does not wait for its store; it serves nobody, so it need not be gone for that."""
    taken_over: list[frozenset[int]] = []

    async def take_over(numbers: frozenset[int], _lost_at_ms: int) -> int:
        taken_over.append(numbers)
        return 0

    monkeypatch.setattr(node.remote_sessions, "take_over", take_over)
    two = Members(node.accounts, cast("Any", node.run), node.clock, 2, "two")
    now(two.join(None, cast("Any", node.pause), "hub-2:7883"))
    node.begin()
    node.pass_time(GONE_S + 3)
    node.follower.round()

    assert (taken_over, node.members.living, rows(node)[1].is_gone) == ([frozenset({2})], frozenset(), False)
    node.pass_time(2, two)
    assert node.members.living == {2}


def test_hub_that_is_gone_begins_again(node: Node) -> None:
    """Once: by its row, or because another hub tells it so."""
    node.begin()
    two = other(node)
    node.pass_time(2, two)
    row = rows(node)[0]
    assert hubs.declare_gone(
        node.accounts, 2, two.incarnation, (1, row.incarnation), CUT_OFF, hubs.read(node.accounts).version
    )

    node.pass_time(3, two)

    assert [type(error) for error in node.replaced] == [ExpelledError]
    assert node.plane.turn.held_at == -math.inf
    assert node.guards[-1] is not None
    assert not node.guards[-1]()


def test_hub_that_is_told_that_it_is_gone_begins_again(node: Node) -> None:
    node.begin()
    assert node.links is not None
    on_tick, on_told_gone = node.links.calls

    on_told_gone()
    on_tick()

    assert [type(error) for error in node.replaced] == [ExpelledError]


def test_acknowledgements_wait_for_evidence_while_there_are_others(node: Node) -> None:
    """A hub that is alone asks nobody."""
    node.begin()
    assert node.guards[-1] is None
    two = other(node)
    node.pass_time(2, two)
    guard = node.guards[-1]
    assert guard is not None
    assert guard()

    assert node.links is not None
    node.links.silent_s = SILENT_S + 1  # this process stood still
    node.clock.advance(LOOK_S + 1)

    assert not guard()


def test_start_remembers_who_came_while_it_was_loading(node: Node) -> None:
    """Also when they have left again: what they began is theirs."""
    peers = now(node.stores.join())
    assert not peers.exist
    two = other(node)
    node.pass_time(2, two)
    assert (peers.living, peers.joined()) == (frozenset(), {2})

    now(two.deregister())
    node.pass_time(2)

    assert node.members.living == frozenset()
    assert peers.exist


def test_subscription_settles_when_the_others_know_it(node: Node) -> None:
    node.begin()
    settled = node.stores.settle(7, (4, 2))
    assert settled is not None
    [(tenant_id, place, on_done)] = node.known.waiting
    assert (tenant_id, place, settled.called) == (7, (4, 2), False)

    on_done()
    assert settled.called

    node.known.knows_all = True
    assert node.stores.settle(7, (5,)) is None


def test_subscription_that_the_log_cannot_place_settles_after_its_end(node: Node) -> None:
    """Whatever the end is by then; a log that cannot be read is asked again."""
    node.begin()
    settled = node.stores.settle(7, None)
    assert settled is not None
    node.follower.waiting.pop().errback(UnavailableError("away"))
    node.pass_time(1.2)
    assert node.known.waiting == []

    node.stores.log_place.note_applied((9, 8))
    node.follower.round()
    [(_, place, on_done)] = node.known.waiting
    on_done()

    assert (place, settled.called) == ((9, 8), True)


def test_others_hear_of_each_page_when_it_is_applied(node: Node) -> None:
    """In the same turn, beginning with what the start has loaded; who waits for more has the log read."""
    node.begin()
    now(node.follower.apply([], (8,)))

    assert node.known.applied == [(7,), (8,)]
    node.stores.log_place.note_applied((8,))
    assert node.stores.log_place.await_applied((9,), lambda: None)
    assert node.follower.hurried == 1


def test_log_that_cannot_be_followed_is_not_waited_for_for_ever(node: Node) -> None:
    with pytest.raises(UnavailableError):
        now(node.stores.catch_up())
    node.begin()
    failures: list[Any] = []
    Deferred.fromCoroutine(node.stores.catch_up()).addErrback(failures.append)

    node.reactor.advance(CATCH_UP_S + 0.1)

    assert failures[0].check(UnavailableError)


def test_hub_that_is_gone_is_taken_over_from_when_its_last_events_are_known(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From when it was last seen."""
    taken_over: list[tuple[frozenset[int], int]] = []
    two = other(node)
    node.begin()

    async def take_over(numbers: frozenset[int], lost_at_ms: int) -> int:
        taken_over.append((numbers, lost_at_ms))
        return 3

    monkeypatch.setattr(node.remote_sessions, "take_over", take_over)
    node.pass_time(1.5, two)
    node.follower.round()
    seen_at = node.clock.wall()

    kill(node)
    assert taken_over == []
    node.follower.round()

    ((numbers, lost_at_ms),) = taken_over
    assert numbers == frozenset({2})
    assert abs(lost_at_ms / 1000 - seen_at) <= 2.0
    assert node.members.living == frozenset()


def test_takeover_that_fails_halfway_is_tried_again(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody else will ever end the sessions of the hub that is gone."""
    taken_over: list[frozenset[int]] = []
    two = other(node)
    node.begin()

    async def take_over(numbers: frozenset[int], _lost_at_ms: int) -> int:
        taken_over.append(numbers)
        if len(taken_over) == 1:
            raise UnavailableError("no")
        return 3

    monkeypatch.setattr(node.remote_sessions, "take_over", take_over)
    node.pass_time(1.5, two)
    node.follower.round()
    kill(node)
    for _ in range(3):
        node.follower.round()
        node.pass_time(1.5)

    assert taken_over == [frozenset({2})] * 2


def test_nothing_is_taken_over_from_a_hub_that_has_come_back(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log could not be read while the hub was away: its clients may be connected again, so their Wills are not due."""
    taken_over: list[frozenset[int]] = []
    two = other(node)
    node.begin()

    async def take_over(numbers: frozenset[int], _lost_at_ms: int) -> int:
        taken_over.append(numbers)
        return 3

    monkeypatch.setattr(node.remote_sessions, "take_over", take_over)
    node.pass_time(1.5, two)
    node.follower.round()
    kill(node)
    again = other(node, two.incarnation)
    node.pass_time(2, again)
    node.follower.round()
    assert taken_over == []

    kill(node)
    node.follower.round()
    assert taken_over == [frozenset({2})]


def test_hub_whose_place_was_taken_says_so(node: Node) -> None:
    """It must not go on."""
    node.begin()
    row = rows(node)[0]
    assert hubs.begin(node.accounts, 1, "quicker", row) is not None

    node.pass_time(2)

    assert [type(error) for error in node.replaced][:1] == [ConflictError]


def test_client_whose_session_was_claimed_elsewhere_is_closed_when_the_log_does_not_say_more(node: Node) -> None:
    """The other hub died between the claim and its event; else the follower has seen to it."""
    node.begin()
    stuck, moved = Held(), Held()
    for session in (stuck, moved, stuck):
        node.stores.on_stale(cast("Any", session))
    moved.epoch = 6

    assert len(node.follower.waiting) == 2
    node.follower.round()

    assert node.closed == [(stuck.connection, Reason.TAKEN_OVER)]


def test_log_that_cannot_be_followed_is_an_alarm_when_there_are_others(node: Node) -> None:
    """A hub that is alone misses nothing."""
    node.begin()
    node.follower.on_alarm("follower_failing", "away")
    other(node)
    now(node.stores.members.refresh())
    node.follower.on_alarm("follower_failing", "away")

    assert node.alarms == [("follower_failing", ""), ("follower_failing", "away")]


def test_states_are_looked_at_again_in_a_thread(node: Node) -> None:
    peers = now(node.stores.join())

    assert now(peers.read_again([SimpleNamespace(key=(7, "c"))])) == ["state of (7, 'c')"]


def test_hub_deregisters_after_everything_else(node: Node) -> None:
    """Nothing is held back any more, and nobody looks."""
    node.begin()

    now(node.stores.stop_following())
    now(node.stores.leave(has_logged_all=True))
    node.pass_time(3)

    assert node.follower.is_closed
    assert node.plane.turn.held_at == math.inf
    assert rows(node)[0].has_left
    assert node.reactor.getDelayedCalls() == []


def test_hub_is_alone_only_when_it_knows_what_the_other_one_said_last(node: Node) -> None:
    """The other's row says that it left before its last events have been read here: they may have made sessions and routes."""
    two = other(node)
    node.begin()
    node.pass_time(6, two)
    node.follower.round()
    node.pass_time(3, two)  # the log cannot be read for a while

    now(two.deregister())
    node.pass_time(1.2)
    was_alone = node.stores.is_alone

    node.follower.round()
    node.pass_time(1.1)
    assert (was_alone, node.stores.is_alone) == (False, True)
    assert node.plane.turn.held_at > node.clock.monotonic()


def test_heartbeat_does_not_wait_for_the_log(node: Node) -> None:
    """It would seem gone to a third hub, which would take over from it."""
    two = other(node)
    node.begin()
    node.pass_time(6, two)
    node.follower.round()
    kill(node)  # and the log cannot be read
    before = rows(node)[0].heartbeat

    node.pass_time(8)

    assert rows(node)[0].heartbeat - before >= 6


def test_hub_lives_for_the_others_until_its_last_events_are_in_the_log(node: Node) -> None:
    """A successor would take over from it while it still writes. If they do not get there, the others see it fall silent."""
    node.begin()
    now(node.stores.stop_following())
    before = rows(node)[0].heartbeat
    node.pass_time(5)
    assert rows(node)[0].heartbeat - before >= 4

    now(node.stores.leave(has_logged_all=False))
    before = rows(node)[0].heartbeat
    node.pass_time(5)
    (row,) = rows(node)
    assert (row.heartbeat, row.is_gone) == (before, False)


def test_hub_with_queues_in_a_file_does_not_join_others(node: Node) -> None:
    """They could not store for them, and would acknowledge all the same."""
    other(node)
    node.settings.queues.driver = "sqlite"

    with pytest.raises(ConfigError, match=r"queues here are in a file .* choose hbase or redis"):
        node.begin()
    assert next(row.has_left for row in rows(node) if row.number == 1)


def test_links_are_told_each_second_who_lives(node: Node) -> None:
    """From the joining on, with the address that each hub wrote into its row; nobody else's silence is waited for."""
    node.links = Links()
    two = Members(node.accounts, cast("Any", node.run), node.clock, 2, "two")
    now(two.join(None, cast("Any", node.pause), "hub-2:7883"))
    node.begin()
    assert (node.links.begun, node.links.seen) == ([node.members.incarnation], [(2, "hub-2:7883")])
    now(two.refresh())
    assert [row.address for row in two.present_rows()] == ["hub-1:7883"]

    node.pass_time(2, two)
    now(two.deregister())
    node.pass_time(2)

    assert node.links.seen == []


def test_links_end_before_the_sockets_do(node: Node) -> None:
    """What was written last has a turn to leave."""
    node.links = Links()
    node.begin()
    closed = Deferred.fromCoroutine(node.stores.close_links())
    assert node.links.is_closed
    assert not closed.called

    node.pass_time(0.2)

    assert closed.called


def evict(node: Node, number: int = 2) -> list[Any]:
    row = next(row for row, _ in node.members.rows() if row.number == number)
    answers: list[Any] = []
    Deferred.fromCoroutine(node.stores.evict(row)).addBoth(answers.append)
    return answers


def test_hub_is_evicted_though_it_is_linked_and_its_heartbeat_moves(node: Node) -> None:
    """That moves the version, and whoever reads it goes on without it."""
    two = other(node)
    node.begin()
    node.follower.round()
    node.pass_time(1, two)
    seen = hubs.read(node.accounts).version

    answers = evict(node)
    node.pass_time(1, two)

    assert answers == [None]
    row = rows(node)[1]
    assert (row.gone_by, row.gone_why, hubs.read(node.accounts).version) == (1, EVICTED, seen + 1)
    assert node.members.living == {2}
    node.pass_time(GO_ON_S + 1)
    assert node.members.living == frozenset()


def test_hub_that_is_gone_is_acknowledged_as_such(node: Node) -> None:
    other(node)
    node.begin()
    node.follower.round()
    kill(node)
    assert rows(node)[1].gone_why == SILENT

    assert evict(node) == [None]

    assert rows(node)[1].gone_why == EVICTED


def test_last_hub_that_serves_clients_is_not_evicted(node: Node) -> None:
    """By one that is still joining."""
    two = other(node)
    assert node.links is not None
    node.links.are_down = True
    node.begin()
    node.pass_time(1, two)

    (answer,) = evict(node)

    assert isinstance(answer.value, ConflictError)
    assert "hub two (2) is the last one that serves clients" in str(answer.value)
    assert not rows(node)[1].is_gone


def test_eviction_that_cannot_be_written_says_why(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of it is done later."""
    two = other(node)
    node.begin()
    node.follower.round()
    node.pass_time(1, two)

    async def fail(*_: object, **__: object) -> None:
        raise UnavailableError("the accounts do not answer")

    with monkeypatch.context() as patch:
        patch.setattr(node.members, "refresh", fail)
        answers = evict(node)
        node.pass_time(4)
    node.pass_time(1, two)

    assert "the accounts do not answer" in str(answers[0].value)
    assert not rows(node)[1].is_gone


def test_links_end_when_the_others_have_acknowledged_everything(node: Node) -> None:
    """And not much later, if they do not."""
    two, links = other(node), node.links
    assert links is not None
    node.begin()
    node.follower.round()
    node.pass_time(1, two)
    links.unacknowledged_bytes = 5

    Deferred.fromCoroutine(node.stores.close_links())
    node.pass_time(1, two)
    assert not links.is_closed
    links.unacknowledged_bytes = 0
    node.pass_time(0.2, two)
    assert links.is_closed

    links.is_closed, links.unacknowledged_bytes = False, 5
    Deferred.fromCoroutine(node.stores.close_links())
    node.pass_time(ACKNOWLEDGED_S + 0.2, two)
    assert links.is_closed


def test_hub_that_dies_while_the_accounts_are_away_is_gone_once_they_are_back(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until then publishers wait: nobody knows whether it lives. No client is closed for it."""
    two, links = other(node), node.links
    assert links is not None
    node.begin()
    node.pass_time(1.5, two)
    node.follower.round()
    with monkeypatch.context() as patch:
        patch.setattr(node.stores.members, "refresh", failing_look)
        links.are_down = True
        node.pass_time(UNLINKED_S - 5)
        assert not rows(node)[1].is_gone
        assert node.plane.turn.held_at <= node.clock.monotonic()
        assert "the accounts are away" in node.stores.held_back

    node.pass_time(GONE_S + 3)

    assert (rows(node)[1].gone_by, rows(node)[1].gone_why) == (1, SILENT)
    assert (node.replaced, node.closed) == ([], [])
    node.follower.round()
    node.pass_time(GO_ON_S)
    assert node.plane.turn.held_at > node.clock.monotonic()
