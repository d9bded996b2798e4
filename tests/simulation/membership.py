"""Hubs that declare each other gone by a table that is sometimes away, and what must be true of their clients all the same.

Real links, routes, message planes and `Membership`; the table does in one step what `iothub_tenants.accounts.hubs` does in one transaction.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from iothub.engine.message import Message
from iothub.engine.routed import decode_routed, tenant_of_routed
from iothub.peers.frames import FrameType
from iothub.peers.link import SILENT_S, Link
from iothub.peers.membership import CUT_OFF, CUT_OFF_S, EVICTED, JOINING, UP, Change, Look, MemberRow, Membership
from iothub.peers.ports import PeerAddress, PeerId
from iothub.testing.engine import Client, packets, publish
from tests.simulation.checks import Evidence
from tests.simulation.hub import SimHub
from tests.simulation.routed import TAIL_S, Clients, Publication, Routing, Subscriber, topic_matches
from tests.simulation.schedule import HARMLESS, Fault, Schedule
from tests.simulation.simulation import Check, Simulation, Suite, ViolationError

if TYPE_CHECKING:
    from collections.abc import Sequence

FAULTS_END_S = 20.0
KINDS = (
    "crash",
    "power",
    "freeze",
    "freeze",
    "freeze_in_turn",
    "freeze_in_turn",
    "cut",
    "cut_one_way",
    "isolate",  # nothing between a node and any other one
    "table_away",  # for one node
    "table_away",
    "flap",
    "leave",
    "freeze_in_look",  # once the rows are read, before it hears of them
    "freeze_in_receive",  # once the clock of a batch is read, before what clients have sent is received
)
AWAY = ("isolate", "freeze", "freeze_in_turn", "freeze_in_look", "freeze_in_receive", "table_away")
LOOK_S = 1.0
SUBSCRIPTIONS = 5  # of one hub
UP_S = 0.1  # between the looks of a hub that waits to be up
TIMEOUT_S = 1.0  # of a question to the table
LOST = 0.05  # answers of the table


def membership_schedule(seed: int) -> Schedule:
    """Draw two to four hubs; half of the schedules have any faults, the others lead into a window in which a rule is all that helps."""
    rng = random.Random(seed)
    hubs = rng.choice((2, 3, 3, 3, 4))
    nodes = rng.sample(range(1, hubs + 1), hubs)
    faults = rng.choice(AIMED)(rng, nodes) if seed % 2 else _any_faults(rng, hubs)
    return Schedule(seed, hubs, tuple(sorted(faults, key=lambda fault: fault.at_s)))


def _any_faults(rng: random.Random, hubs: int) -> list[Fault]:
    """One to five faults that last long enough for somebody to be declared gone."""
    faults = []
    for _ in range(rng.randint(1, 5)):
        node, other = rng.sample(range(1, hubs + 1), 2)
        lasts_s = rng.choice((rng.uniform(0.5, 5.0), rng.uniform(4.0, 12.0), rng.uniform(10.0, 20.0)))
        faults.append(Fault(round(rng.uniform(1.0, 14.0), 3), rng.choice(KINDS), node, other, round(lasts_s, 3)))
    return faults


# A hub whose links are cut is declared gone CUT_S to CUT_S + 2.2 later: after the silence, CUT_OFF_S, a look and its writing.
CUT_S = SILENT_S + CUT_OFF_S


def _calm_s(rng: random.Random) -> float:
    """By then everybody is up and has clients."""
    return rng.uniform(3.5, 6.0)


def _away(rng: random.Random, nodes: list[int]) -> list[Fault]:
    """One is away from everybody, its table included, and everybody else goes on."""
    at_s, lasts_s = _calm_s(rng), rng.uniform(9.0, 20.0)
    kind = rng.choice(("freeze", "isolate", "freeze_in_turn"))
    return [_fault(at_s, kind, nodes, lasts_s), _fault(at_s + rng.uniform(-1.0, 1.0), "table_away", nodes, lasts_s)]


def _asleep(rng: random.Random, nodes: list[int]) -> list[Fault]:
    """One stands still until the others go on without it, at the worst place, and wakes with what it had."""
    kind = rng.choice(("freeze_in_look", "freeze_in_receive"))
    return [_fault(_calm_s(rng), kind, nodes, rng.uniform(CUT_S + 6.0, CUT_S + 11.0))]


def _unaware(rng: random.Random, nodes: list[int]) -> list[Fault]:
    """One is declared gone, and cannot read that."""
    at_s = _calm_s(rng)
    away_s = CUT_S + rng.uniform(-1.0, 1.5)
    return [_fault(at_s, "isolate", nodes, 14.0), _fault(at_s + away_s, "table_away", nodes, rng.uniform(4.0, 12.0))]


def _reached_again(rng: random.Random, nodes: list[int]) -> list[Fault]:
    """One is declared gone, cannot read that, is linked again, and is cut off when the others go on without it."""
    at_s = _calm_s(rng)
    again_s = CUT_S + rng.uniform(4.5, 7.0)
    return [
        _fault(at_s, "isolate", nodes, CUT_S + rng.uniform(0.5, 2.5)),
        _fault(at_s + CUT_S - 1.5, "table_away", nodes, 14.0),
        _fault(at_s + again_s, "isolate", nodes, 8.0),
    ]


def _cut_off_while_joining(rng: random.Random, nodes: list[int]) -> list[Fault]:
    """One joins, or two do, cut off from each other, and perhaps from the table once they are up."""
    at_s, first_s = _calm_s(rng), rng.uniform(0.1, 1.5)
    faults = [_fault(at_s, "cut", nodes, rng.uniform(6.0, 18.0)), _fault(at_s, "crash", nodes, first_s)]
    if rng.random() < 0.7:
        faults.append(_fault(at_s, "crash", nodes[1::-1], first_s + rng.uniform(-0.1, 0.1)))
    if rng.random() < 0.5:
        faults.append(_fault(at_s + first_s + rng.uniform(1.0, 3.0), "table_away", nodes, rng.uniform(2.0, 8.0)))
    return faults


def _evicted(rng: random.Random, nodes: list[int]) -> list[Fault]:
    """An administrator has one declared gone, which lives, and perhaps cannot read that or is not reached."""
    at_s = _calm_s(rng)
    faults = [_fault(at_s, "evict", nodes[1::-1], 0.0)]
    for kind in ("table_away", rng.choice(("freeze", "isolate", "cut_one_way"))):
        if rng.random() < 0.5:
            faults.append(_fault(at_s + rng.uniform(-1.0, 2.0), kind, nodes, rng.uniform(2.0, 14.0)))
    return faults


AIMED = (_evicted, _away, _asleep, _unaware, _reached_again, _cut_off_while_joining)


def _fault(at_s: float, kind: str, nodes: list[int], lasts_s: float) -> Fault:
    return Fault(round(at_s, 3), kind, nodes[0], nodes[1], round(lasts_s, 3))


@dataclass
class Table:
    """Who there is, as one place has it."""

    version: int = 0

    def __post_init__(self) -> None:
        self.rows: dict[int, MemberRow] = {}
        self.addresses: dict[PeerId, PeerAddress] = {}

    def begin(self, hub: SimHub) -> None:
        self.rows[hub.node] = MemberRow(hub.id, JOINING, 1, 0)
        self.addresses[hub.id] = hub.row
        self.version += 1

    def heartbeat(self, peer: PeerId, links: int) -> tuple[int, list[MemberRow]]:
        row = self.rows[peer.node]
        if self.lives(peer):
            self.rows[peer.node] = replace(row, counter=row.counter + 1, links=links)
        return self.version, list(self.rows.values())

    def lives(self, peer: PeerId) -> bool:
        row = self.rows[peer.node]
        return row.peer == peer and not row.is_gone

    def write(self, peer: PeerId, change: Change) -> bool:
        if not self.is_current(change) or not self.lives(peer):
            return False
        if change.gone is None:
            self.rows[peer.node] = replace(self.rows[peer.node], state=UP)
        elif not self.lives(change.gone):
            return False
        else:
            self.rows[change.gone.node] = replace(self.rows[change.gone.node], is_gone=True)
        self.version += 1
        return True

    def is_current(self, change: Change) -> bool:
        return change.version == self.version

    def leave(self, peer: PeerId) -> None:
        if self.lives(peer):
            self.rows[peer.node] = replace(self.rows[peer.node], is_gone=True, is_settled=True)
            self.version += 1


class MemberSimulation(Simulation):
    """Looks at the table and writes to it for each hub, and lets hubs begin again that are gone."""

    heal_s = 45.0
    tick_s = (0.1, 0.3)  # whether pings and acknowledgements leave late is for the links' own schedules

    def __init__(self, schedule: Schedule, suite: Suite, log: Callable[[str], None] | None = None) -> None:
        super().__init__(schedule, suite, log)
        self.table = Table()
        self.away_until: dict[int, float] = {}
        self.begun_again: list[PeerId] = []
        self.began_calmly: bool | None = None  # everybody was up before the first fault

    def is_member(self, peer: PeerId) -> bool:
        return peer.node in self.table.rows and self.table.lives(peer)

    def _start(self, node: int, incarnation: int) -> None:
        if self._is_away(node):
            self.world.after(0.5, partial(self._start, node, incarnation))
            return
        hub = SimHub(self, node, incarnation)
        self.table.begin(hub)
        self.note(hub, "starts")
        self.members[node] = hub
        self.alive[hub.row.address] = hub
        self.active[hub.id] = self.world.now
        self._look(hub)

    def _look(self, hub: SimHub) -> None:
        hub.later(partial(self._ask, hub))

    def _ask(self, hub: SimHub) -> None:
        """The heartbeat is written and the rows are read at some time after the question, and the answer is heard some time later."""
        if hub.is_dead:
            return
        member = member_of(hub)
        if member.membership.gone:
            self._begin_again(hub)
            return
        began, links = hub.boottime(), member.membership.links_up()

        def read() -> None:
            if self._is_away(hub.node):
                self.world.after(TIMEOUT_S, partial(self._look, hub))
                return
            version, rows = self.table.heartbeat(hub.id, links)
            if member.freezes_in_look_s:
                hub.frozen_until, member.freezes_in_look_s = self.world.now + member.freezes_in_look_s, 0.0
            self._answer(hub, partial(self._heard, hub, Look(version, rows, began)), partial(self._look, hub))

        self.world.after(self.world.rng.random() * 0.3, read)

    def _answer(self, hub: SimHub, heard: Callable[[], None], lost: Callable[[], None]) -> None:
        rng = self.world.rng
        if self._is_away(hub.node) or rng.random() < LOST:
            self.world.after(TIMEOUT_S, lost)
        else:
            self.world.after(rng.random() * 0.3, lambda: hub.later(heard))

    def _heard(self, hub: SimHub, look: Look) -> None:
        member = member_of(hub)
        if hub.is_dead:
            return
        linked = {peer for peer in hub.links.linked() if hub.links.is_linked(peer)}
        change = member.looked(look, self.table.addresses)
        look_s = LOOK_S if member.membership.is_up else UP_S
        again = partial(self.world.after, look_s * self.world.rng.uniform(0.8, 1.2), partial(self._look, hub))
        if change is None:
            again()
            return
        hub.pause_here()
        if change.gone in linked and change.why != EVICTED:
            raise ViolationError(f"{hub.id} declares {change.gone} gone, to which its link is up")
        if change.why == CUT_OFF and change.gone not in hub.links.linked():
            raise ViolationError(f"{hub.id} is cut off from {change.gone}, both are up, and they were never linked")

        def write() -> None:
            if self._is_away(hub.node):
                self.world.after(TIMEOUT_S, again)
                return
            is_done = self.table.write(hub.id, change)
            if is_done:
                self.note(hub, f"writes {'up' if change.gone is None else f'gone {tuple(change.gone)} {change.why}'}")
            self._answer(hub, lambda: (member.written(change, is_done=is_done), again()), again)  # type: ignore[func-returns-value]

        self.world.after(self.world.rng.random() * 0.3, write)

    def _begin_again(self, hub: SimHub) -> None:
        if hub.is_dead or self.members[hub.node] is not hub:
            return
        self.note(hub, "begins again")
        self.begun_again.append(hub.id)
        self._kill(hub, is_silent=False)
        self.world.after(self.world.rng.uniform(0.1, 1.0), partial(self._start_next, hub))

    def _is_away(self, node: int) -> bool:
        return self.world.now < self.away_until.get(node, 0.0)

    def _strike(self, fault: Fault) -> None:
        if self.began_calmly is None:
            self.began_calmly = not self._not_up()
        hub, world = self.members[fault.node], self.world
        if hub.is_dead:
            return
        match fault.kind:
            case "isolate":
                self.note(hub, f"isolate {fault.lasts_s}")
                for other in range(1, self.schedule.hubs + 1):
                    if other != fault.node:
                        world.cut(fault.node, other, fault.lasts_s)
                        world.cut(other, fault.node, fault.lasts_s)
            case "table_away":
                self.note(hub, f"table away {fault.lasts_s}")
                self.away_until[fault.node] = world.now + fault.lasts_s
            case "evict":
                self.note(hub, f"evicts {fault.other}")
                member_of(hub).membership.evict(self.members[fault.other].id)
            case "leave":
                self.note(hub, "leaves")
                self._kill(hub, is_silent=False)
                self.table.leave(hub.id)
                world.after(fault.lasts_s, partial(self._start_next, hub))
            case "freeze_in_look":
                self.note(hub, f"freezes in its next look for {fault.lasts_s}")
                member_of(hub).freezes_in_look_s = fault.lasts_s
            case "freeze_in_receive":
                member_of(hub).freezes_in_receive_s = fault.lasts_s
            case _:
                assert fault.kind not in HARMLESS
                super()._strike(fault)

    def _remaining(self) -> list[str]:
        return [*super()._remaining(), *self._not_up()]

    def _not_up(self) -> list[str]:
        return [
            f"node {node} is not up"
            for node, hub in self.members.items()
            if hub.is_dead or not self.is_member(hub.id) or not member_of(hub).membership.is_up
        ]


def member_of(hub: SimHub) -> MemberClients:
    (member,) = hub.workloads
    assert isinstance(member, MemberClients)
    return member


class _Clock:
    """The plane's clock is the hub's."""

    def __init__(self, hub: SimHub) -> None:
        self.monotonic = self.wall = hub.boottime


class _RecordedLinks:
    """Notes to whom a publication was routed: what was given to a link may go with its peer, by name."""

    def __init__(self, clients: MemberClients, hub: SimHub) -> None:
        self._clients, self._hub = clients, hub

    def link_to(self, peer: PeerId) -> _RecordedLink:
        return _RecordedLink(self, self._hub.links.link_to(peer))

    def note(self, peer: PeerId, frame_type: FrameType, body: bytes) -> None:
        if frame_type == FrameType.PUBLISH:
            messages: list[Message] = []
            at = 0
            while at < len(body):
                at = decode_routed(body, at, tenant_of_routed(body, at), {}, {}, messages)
            for message in messages:
                self._clients.note_routed(int(message.payload.split(b" ")[0]), peer)


class _RecordedLink:
    """One of them."""

    def __init__(self, links: _RecordedLinks, link: Link) -> None:
        self._links, self._link = links, link
        self.batch_bytes = link.batch_bytes
        self.is_full, self.is_half_full, self.announce = link.is_full, link.is_half_full, link.announce

    @property
    def flush(self) -> Callable[[], None]:
        return self._link.flush

    @flush.setter
    def flush(self, flush: Callable[[], None]) -> None:
        self._link.flush = flush

    def send(self, frame_type: FrameType, body: bytes) -> int:
        self._links.note(self._link.peer, frame_type, body)
        return self._link.send(frame_type, body)


class MemberClients(Clients):
    """The clients of a hub that serves them only as a member, as the hub does it: `iothub.hub.cluster.heartbeat`, `iothub.hub.cluster.cluster`.

    Invariant: each subscription is the only one of its hub to its topic, and few topics are subscribed at a time, or the others would route there
    already what they know nothing of.
    """

    leaves = 0.005  # clients cannot come again where another hub is awaited
    topics = filters = tuple(b"t/%d" % number for number in range(10))

    def __init__(self, hub: SimHub, routing: MemberRouting) -> None:
        super().__init__(hub, routing)
        self._member_routing = routing
        self._sent: list[Publication] = []
        self.freezes_in_look_s = self.freezes_in_receive_s = 0.0
        self.membership = Membership(hub.id, hub.links, hub)
        self.membership.become_ready()
        plane = self._bench.plane
        plane.turn.clock = _Clock(hub)
        plane.answers.guard(lambda: self.may_acknowledge())
        self._routes._links = _RecordedLinks(self, hub)
        refused = hub.refused

        def note_refusal(*args: object, by_peer: bool) -> None:
            refused(*args, by_peer=by_peer)  # type: ignore[arg-type]
            if by_peer and getattr(args[2], "value", "") == "gone":
                self.membership.told_gone()

        hub.on_tick = self._ticked
        hub.refused = note_refusal  # type: ignore[method-assign]
        self._hold()
        self._send_later()

    def _ticked(self) -> float:
        self.membership.pass_time()
        self._hold()
        return self.membership.due()

    @property
    def subscribers(self) -> Sequence[Subscriber]:
        return self._subscribers

    def looked(self, look: Look, addresses: dict[PeerId, PeerAddress]) -> Change | None:
        change = self.membership.take_look(look)
        present = [row for row in look.rows if self.membership.is_present(row.peer)]
        self._hub.links.members([addresses[row.peer] for row in present])
        self._routes.members(row.peer for row in present if row.state != JOINING)
        self._hold()
        return change

    def written(self, change: Change, *, is_done: bool) -> None:
        self.membership.written(change, is_done=is_done)
        self._hold()

    def may_acknowledge(self) -> bool:
        return self.membership.may_route()

    def note_routed(self, number: int, peer: PeerId) -> None:
        self._member_routing.routed.add((number, peer))

    def act(self) -> None:
        self._is_joined = self.membership.is_up and not self.membership.gone
        if self.membership.gone and not self._hub.is_dead:
            self._hub.sim._begin_again(self._hub)  # its clients go; it comes again
            return
        super().act()

    def _pass_time(self) -> None:
        """The clock is the hub's."""

    def _hold(self) -> None:
        self._bench.plane.hold_from(self.membership.routes_until())

    def _subscribe(self, topic_filter: bytes) -> None:
        present = next((each for each in self._subscribers if each.topic_filter == topic_filter), None)
        if present is None and len(self._subscribers) < SUBSCRIPTIONS:
            super()._subscribe(topic_filter)
        else:
            self._unsubscribe(present or self._hub.world.rng.choice(self._subscribers))

    # --- a client sends, whether the hub stands still or not

    def _send_later(self) -> None:
        world, sim = self._hub.world, self._hub.sim
        if self._hub.is_dead or (sim.is_healing and world.now > self._due + TAIL_S):
            return
        if self._is_served and world.rng.random() < 0.5:
            self._send()
            self._hub.later(self._receive)
        world.after(world.rng.uniform(0.1, 1.0), self._send_later)

    def _publish_soon(self) -> None:
        for _ in range(self._hub.world.rng.randint(1, 3)):
            self._send()
        self._receive()

    def _send(self) -> None:
        routing = self._routing
        topic = self._hub.world.rng.choice(self.topics)
        publication = Publication(len(routing.publications), self.id, topic, routing.next_event())
        routing.publications.append(publication)
        self._sent.append(publication)

    def _receive(self) -> None:
        """Read the client's socket. The process may stand still between the reading of the clock, the last recv and the acknowledgements."""
        hub, plane = self._hub, self._bench.plane
        plane.turn.begin()
        if self.freezes_in_receive_s:
            hub.pause, self.freezes_in_receive_s = (0, self.freezes_in_receive_s), 0.0
        hub.pause_here()
        sent, self._sent = self._sent, []
        publisher = self._publisher
        if publisher is None or self.membership.gone or not self._is_served:
            for publication in sent:
                publication.is_lost = True
            return
        for publication in sent:
            self._unanswered.append(publication)
            number = publication.number
            publisher.connection.feed(publish(publication.topic, b"%d " % number, 1, number % 65_535 + 1))
        hub.pause_here()
        plane.end_batch()
        self._take_answers(publisher)

    def _take_answers(self, publisher: Client) -> None:
        for _ in packets(publisher.take()):
            self._member_routing.note_acknowledged(self._unanswered.pop(0), self._hub.sim)

    def _leave(self) -> None:
        for publication in (*self._unanswered, *self._sent):
            publication.is_lost = True
        self._unanswered.clear()
        self._sent.clear()
        super()._leave()


class MemberRouting(Routing):
    """As routes promise it, with hubs that are gone: what is acknowledged anywhere was routed to each hub that lives and has acknowledged the
    subscription before it was sent. A hub that lives is up in the end, and everybody has an answer.
    """

    def __init__(self) -> None:
        super().__init__()
        self.routed: set[tuple[int, PeerId]] = set()

    def remaining(self, sim: Simulation) -> list[str]:
        living = {hub.id for hub in sim.living_members()}
        found = [text for hub in self.hubs if hub.id in living for text in hub.remaining()]
        for each in self.subscribers:
            if each.hub in living and not each.ended and not each.acknowledged:
                found.append(f"{each.hub} has not acknowledged {each.topic_filter!r}")
        for publication in self.publications:
            if publication.hub in living and not publication.is_acknowledged and not publication.is_lost:
                found.append(f"{publication.hub} has not acknowledged publication {publication.number}")
        return found

    def note_acknowledged(self, publication: Publication, sim: Simulation) -> None:
        """Its PUBACK has left."""
        publication.is_acknowledged = True
        for hub in sim.living_members():
            if hub.id != publication.hub and (publication.number, hub.id) not in self.routed:
                self._require_unknown(publication, member_of(hub).subscribers)

    def _require_unknown(self, publication: Publication, subscribers: Sequence[Subscriber]) -> None:
        for each in subscribers:
            is_due = 0 < each.acknowledged < publication.sent and topic_matches(each.topic_filter, publication.topic)
            if is_due and not each.got[publication.number]:
                raise ViolationError(
                    f"{publication.hub} has acknowledged publication {publication.number}, and knew nothing of a subscription that "
                    f"{each.hub} had acknowledged before"
                )


class FewestLinks(Check):
    """Where one hub alone is away, and nothing else goes wrong, nobody else begins again."""

    def remaining(self, sim: Simulation) -> list[str]:
        assert isinstance(sim, MemberSimulation)
        hit = {fault.node for fault in sim.schedule.faults}
        is_of_one = len(hit) == 1 and all(fault.kind in AWAY for fault in sim.schedule.faults)
        others = [peer for peer in sim.begun_again if peer.node not in hit]
        if sim.began_calmly and is_of_one and others and sim.schedule.hubs > 2:
            raise ViolationError(f"{others[0]} has begun again, and only node {min(hit)} was away")
        return []


def membership_suite() -> Suite:
    """Hubs that come and go by a table."""
    routing = MemberRouting()

    def clients(hub: SimHub) -> MemberClients:
        return MemberClients(hub, routing)

    checks: Sequence[Check] = [routing, FewestLinks(), Evidence()]
    return Suite(checks, [clients], MemberSimulation, membership_schedule)
