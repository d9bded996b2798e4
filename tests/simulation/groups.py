"""Members of shared groups at every hub, over real message planes and real routes, and what must be true of what they get.

Knows no fault and no frame of a link. Clients come and go as those of `tests.simulation.routed`.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from iothub.engine.filters import join_share
from iothub.peers.ports import PeerId
from iothub.testing.engine import Client, ack, packets, publish
from tests.simulation.routed import SETTINGS, Clients, Publication, Routing
from tests.simulation.simulation import Simulation, ViolationError

if TYPE_CHECKING:
    from tests.simulation.hub import SimHub

TOPIC = b"job/1"
GROUPS = ((b"g", b"job/#"), (b"h", b"job/+"), (b"i", b"#"), (b"j", b"job/1"))  # each message is for one member of each
_BURST = 60
_MEMBERS = 4  # at one hub


@dataclass(eq=False)
class Member:
    """One client in one group. `acknowledged`: which event of the run its SUBACK was; `ended`: the end of its session, 0: none."""

    number: int
    hub: PeerId
    group: bytes
    topic_filter: bytes
    qos: int
    client: Client
    acknowledged: int = 0
    ended: int = 0
    unanswered: list[tuple[int, bytes]] = field(default_factory=list)  # number of a publication, the PUBACK for it
    done: set[int] = field(default_factory=set)  # publications that it has acknowledged


@dataclass(eq=False)
class GroupPublication(Publication):
    """A PUBLISH for the groups. `got`: by group, who got it, in this order; `excused`: groups in which it may be lost."""

    qos: int = 1
    got: dict[bytes, list[Member]] = field(default_factory=lambda: defaultdict(list))
    excused: set[bytes] = field(default_factory=set)


class Sharing(Routing):
    """A PUBLISH that is acknowledged reaches one member of each group if one was there all the time, and the publisher's hub lives on.

    Another one gets it only after the session of the former has ended, and never what was delivered with QoS 2; nobody waits for ever, and
    nothing is kept for ever. With QoS 2 it may be lost with a hub that was about to send it to a client. What a hub does that was expelled
    and does not know it is another milestone's.
    """

    def __init__(self) -> None:
        super().__init__()
        self.members: list[Member] = []
        self.publications: list[GroupPublication] = []  # type: ignore[assignment]
        self.has_both: set[int] = set()

    def note_member_delivery(self, sim: Simulation, member: Member, number: int, qos: int) -> None:
        publication = self.publications[number]
        living = {hub.id for hub in sim.living_members()}
        if member.hub not in living:
            publication.excused.add(member.group)
            return
        former = publication.got[member.group]
        for each in former:
            if min(each.qos, publication.qos) == 2:
                raise ViolationError(f"{member.hub} delivers publication {number} after {each.hub}, with QoS {qos}")
            if not each.ended and each.hub in living:
                raise ViolationError(f"{member.hub} delivers publication {number}, which {each.hub} has delivered")
        former.append(member)

    def remaining(self, sim: Simulation) -> list[str]:
        living = {hub.id for hub in sim.living_members()}
        found = [text for hub in self.hubs if hub.id in living for text in hub.remaining()]
        for each in self.members:
            if each.hub in living and not each.ended and not each.acknowledged:
                found.append(f"{each.hub} has not acknowledged the member {each.number}")
        for publication in self.publications:
            if publication.hub in living:
                if not publication.is_acknowledged:
                    found.append(f"{publication.hub} has not acknowledged publication {publication.number}")
                found += self._lost(publication, living)
        return found

    def _lost(self, publication: GroupPublication, living: set[PeerId]) -> list[str]:
        return [
            f"publication {publication.number} (QoS {publication.qos}) of {publication.hub} has reached nobody in {group!r}"
            for group, _ in GROUPS
            if group not in publication.excused
            and any(
                each.group == group
                and each.hub in living
                and not each.ended
                and 0 < each.acknowledged < publication.sent
                for each in self.members
            )
            and not any(publication.number in each.done for each in publication.got[group])
        ]


class Members(Clients):
    """The clients of one hub. Some acknowledge at once, some later."""

    def __init__(self, hub: SimHub, sharing: Sharing) -> None:
        super().__init__(hub, sharing)
        self._sharing = sharing
        self._members: list[Member] = []
        groups = self._routes._groups
        drop = groups.drop

        def note_drop(kept: Any) -> None:
            if kept.is_taken:
                sharing.publications[_number_of(kept.message.payload)].excused.add(kept.name)
            drop(kept)

        groups.drop = note_drop  # type: ignore[method-assign]

    def burst(self) -> None:
        """Publish more than a link takes."""
        if self._is_served:
            for _ in range(_BURST):
                self._publish(b"#" * 300)

    def remaining(self) -> list[str]:
        held = self._bench.plane.turn.buffered_bytes
        return [*super().remaining(), *([f"{self.id} holds {held} bytes"] if held else [])]

    def _do_something(self, chance: float) -> None:
        rng = self._hub.world.rng
        if not self._is_open:
            self._open()
        elif not self._is_served:
            if chance < 0.1:
                self._leave()
        elif chance < 0.35 and len(self._members) < _MEMBERS and self.id.node > 1:
            self._join(rng)  # not at the first hub, so that others have to help
        elif 0.35 < chance < 0.45 and self._members:
            self._end(rng.choice(self._members))
        elif 0.45 < chance < 0.48 and not self._unanswered and not self._bench.tenant.buffered_bytes:
            self._leave()  # as the broker: what another hub may return keeps it
        else:
            for _ in range(rng.randint(1, 4)):
                self._publish(b"")

    def _leave(self) -> None:
        for each in list(self._members):
            self._end(each)
        super()._leave()

    def _join(self, rng: Any) -> None:
        sharing = self._sharing
        group, topic_filter = rng.choice(GROUPS)
        number = len(sharing.members)
        client = self._bench.client(f"m{number}", settings=SETTINGS)
        each = Member(number, self.id, group, topic_filter, rng.choice((1, 2)), client)
        sharing.members.append(each)
        self._members.append(each)
        client.subscribe(topic_filter, each.qos, group=group)

        def acknowledge() -> None:
            each.acknowledged = sharing.next_event()

        if not self._routes.await_routed(self._bench.tenant, [join_share(group, topic_filter)], acknowledge):
            acknowledge()

    def _end(self, each: Member) -> None:
        """A client goes, and has read what was sent to it before."""
        self._bench.plane.end_batch()
        self._read_member(each)
        self._members.remove(each)
        each.ended = self._sharing.next_event()
        each.client.drop()
        self._bench.plane.discard(each.client.session)

    def _publish(self, filler: bytes) -> None:
        sharing, publisher = self._sharing, self._publisher
        assert publisher is not None
        number, qos = len(sharing.publications), self._hub.world.rng.choice((1, 2))
        publication = GroupPublication(number, self.id, TOPIC, sharing.next_event(), qos=qos)
        sharing.publications.append(publication)
        self._unanswered.append(publication)
        publisher.connection.feed(publish(TOPIC, b"%d %b" % (number, filler), qos, number % 65_535 + 1))
        self._bench.plane.end_batch()
        self._take_answers(publisher)

    def _read(self) -> None:
        for each in self._members:
            self._read_member(each)
        if self._is_served and self._publisher is not None:
            self._take_answers(self._publisher)

    def _read_member(self, each: Member) -> None:
        sim, rng = self._hub.sim, self._hub.world.rng
        if each.unanswered and (rng.random() < 0.3 or sim.is_healing):
            unanswered, each.unanswered = each.unanswered, []
            for number, answer in unanswered:
                each.client.connection.feed(answer)
                each.done.add(number)
            self._bench.plane.end_batch()
        for header, body in packets(each.client.take()):
            if header == 0x62:
                each.client.connection.feed(ack(0x70, int.from_bytes(body, "big")))
                continue
            qos, topic_end = header >> 1 & 3, 2 + int.from_bytes(body[:2], "big")
            packet_id, number = (
                int.from_bytes(body[topic_end : topic_end + 2], "big"),
                _number_of(body[topic_end + 2 :]),
            )
            self._sharing.note_member_delivery(sim, each, number, qos)
            if qos == 2:
                each.client.connection.feed(ack(0x50, packet_id))
                each.done.add(number)
            else:
                each.unanswered.append((number, ack(0x40, packet_id)))
        self._bench.plane.end_batch()

    def _take_answers(self, publisher: Client) -> None:
        """PUBACKs and PUBRECs come in the order of the PUBLISHes."""
        for header, body in packets(publisher.take()):
            if header >> 4 in (4, 5):
                self._unanswered.pop(0).is_acknowledged = True
            if header >> 4 == 5:
                publisher.connection.feed(ack(0x62, int.from_bytes(body[:2], "big")))
        self._bench.plane.end_batch()


def _number_of(payload: bytes) -> int:
    return int(payload.split(b" ")[0])
