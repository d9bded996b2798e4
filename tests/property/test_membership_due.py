"""A hub that looks at who is there only when something is due does the same as one that looks all the time."""

from __future__ import annotations

import math
from collections.abc import Iterable

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from iothub.peers.membership import JOINING, UP, Look, MemberRow, Membership
from iothub.peers.ports import PeerId
from iothub.testing.clock import ManualClock
from tests.support.in_process.asked_links import AskedLinks
from tests.support.night import by_day

ME = PeerId(1, 1)
SOON_S = 0.001
nodes = st.integers(2, 4)


class Links(AskedLinks):
    """Links that are up or down, with evidence of when a hub was heard last."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__()
        self.clock = clock
        self.evidence: dict[PeerId, float] = {}
        self.is_down: set[PeerId] = set()

    def linked(self) -> Iterable[PeerId]:
        return tuple(self.evidence)

    def is_linked(self, peer: PeerId) -> bool:
        return peer in self.evidence and peer not in self.is_down

    def down_for(self, peer: PeerId) -> float:
        return 0.0 if self.is_linked(peer) else math.inf

    def evidence_age(self, peer: PeerId) -> float:
        return self.clock.boottime() - self.evidence.get(peer, -math.inf)

    def drop(self, peer: PeerId) -> None:
        super().drop(peer)
        self.evidence.pop(peer, None)


class OneHub(RuleBasedStateMachine):
    """Hub 1, whose time passes at what is due alone, and whenever a link or a row changes."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.links = Links(self.clock)
        self.membership = Membership(ME, self.links, self.clock)
        self.membership.become_ready()
        self.rows = {1: MemberRow(ME, JOINING, 1, 0)}

    @rule(node=nodes, is_up=st.booleans())
    def join(self, node: int, is_up: bool) -> None:
        before = self.rows.get(node)
        incarnation = before.peer.incarnation + 1 if before is not None else 1
        self.rows[node] = MemberRow(PeerId(node, incarnation), UP if is_up else JOINING, 1, 1)

    @rule(node=nodes, is_settled=st.booleans())
    def end(self, node: int, is_settled: bool) -> None:
        if node in self.rows:
            row = self.rows[node]
            self.rows[node] = MemberRow(row.peer, row.state, row.counter, 0, is_gone=True, is_settled=is_settled)

    @rule(is_written=st.booleans())
    def look(self, is_written: bool) -> None:
        look = Look(1, list(self.rows.values()), self.clock.boottime())
        change = self.membership.take_look(look)
        if change is not None and is_written:
            if change.gone is None:
                self.rows[1] = MemberRow(ME, UP, 1, 0)
            self.membership.written(change, is_done=True)
        self.membership.pass_time()

    @rule(node=nodes)
    def hear(self, node: int) -> None:
        if node in self.rows:
            peer = self.rows[node].peer
            self.links.evidence[peer] = self.clock.boottime()
            self.links.is_down.discard(peer)
        self.membership.pass_time()

    @rule(node=nodes)
    def lose(self, node: int) -> None:
        if node in self.rows:
            self.links.is_down.add(self.rows[node].peer)
        self.membership.pass_time()

    @rule(seconds=st.sampled_from((0.5, 2.0, 3.5, 25.0)))
    def wait(self, seconds: float) -> None:
        end = self.clock.boottime() + seconds
        while self.clock.boottime() < end:
            self._pass_to(min(end, self.membership.due() - SOON_S))
            done = self.done()
            self.membership.pass_time()
            assert self.done() == done
            self._pass_to(min(end, self.membership.due() + SOON_S))
            self.membership.pass_time()
            assert self.membership.due() > self.clock.boottime()

    def _pass_to(self, at: float) -> None:
        self.clock.advance(max(0.0, at - self.clock.boottime()))

    def done(self) -> object:
        return list(self.links.said), self.membership.gone, self.membership.members(), self.membership._unlinked_since


TestOneHub = OneHub.TestCase
TestOneHub.settings = settings(max_examples=by_day(100, 200), stateful_step_count=30, deadline=None)
