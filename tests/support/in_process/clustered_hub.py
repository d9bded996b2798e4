"""One hub of several with doubles of its links and of its log: what tests of `iothub.hub.cluster` work with."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock as Reactor
from twisted.python.failure import Failure

from iothub.base.errors import ConflictError
from iothub.base.reasons import Reason
from iothub.hub.cluster.cluster import HubCluster
from iothub.hub.stores.wait_for_servers import Waiting
from iothub.peers.membership import GO_ON_S
from iothub.peers.ports import PeerId
from iothub.testing.clock import ManualClock
from iothub_services.damaged import uncounted
from iothub_services.events.port import Offsets
from iothub_tenants.accounts import hubs
from iothub_tenants.accounts.hubs import HubRow
from iothub_tenants.accounts.store import AccountStore
from iothub_tenants.background.membership import GONE_S, Members
from iothub_tenants.background.remote_sessions import RemoteSessions
from tests.support.in_process.control_harness import now


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


class Links:
    """Notes what the cluster says of its own hub and of others. `are_down`: no other hub is linked; `silent_s`: since one was heard of."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.seen: list[tuple[int, str]] = []
        self.peers: list[PeerId] = []
        self.is_closed = self.are_down = self.has_wrong_clock = self.needs_third_clock = self.serves = False
        self.third_clocks: list[float] = []
        self.troubles: dict[int, str] = {}
        self.clock_fault = ""
        self.silent_s = 0.0
        self.unacknowledged_bytes = 0
        self.calls: tuple[Callable[[], object], ...] = ()

    def open(self) -> str:
        return "hub-1:7883"

    def begin(self, incarnation: int, *calls: Callable[[], object]) -> Links:
        """`calls`: at each tick, and when a hub says that this one is gone."""
        self.begun.append(incarnation)
        self.calls = calls
        return self

    def members(self, rows: Sequence[HubRow], *, serves: bool) -> None:
        self.serves = serves
        self.seen = [(row.number, row.address) for row in rows]
        self.peers = [PeerId(row.number, row.incarnation) for row in rows]

    def up(self) -> list[int]:
        return [] if self.are_down else [number for number, _ in self.seen]

    def unlinked(self) -> bool:
        return self.are_down and bool(self.seen)

    def is_clock_wrong(self) -> bool:
        return self.has_wrong_clock

    def note_third_clock(self, wall_s: float, _asked_at: float) -> None:
        self.third_clocks.append(wall_s)

    def judge_gone(self, rows: Sequence[HubRow]) -> None: ...

    def status(self) -> list[Any]:
        state, bytes_ = "down" if self.are_down else "up", self.unacknowledged_bytes
        return [
            SimpleNamespace(peer=peer, name=f"hub-{peer.node}", state=state, unacknowledged_bytes=bytes_)
            for peer in self.peers
        ]

    def trouble(self, node: int) -> str:
        return self.troubles.get(node, "")

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
            hold_from=partial(setattr, turn, "held_at"),
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
        self.replaced: list[ConflictError] = []  # ExpelledError, too
        self.on_replaced = self.replaced.append
        self.stores = HubCluster(cast("Any", self))

    async def run(self, _name: str, call: Callable[..., Any], *args: Any) -> Any:
        return call(*args)

    def places(self) -> Places | None:
        return None if self.links is None else self.known

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
        opened: list[object] = []
        Deferred.fromCoroutine(self._start()).addBoth(opened.append)
        for failure in opened:
            if isinstance(failure, Failure):
                failure.raiseException()
        return opened

    async def _start(self) -> None:
        await self.stores.join()
        await self.stores.open((7,))


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
