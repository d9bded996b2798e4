"""Two hubs and their link, in any order of sending, delivering, breaking, waiting and beginning again."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from iothub.base.errors import UnavailableError
from iothub.peers.frames import FrameType
from iothub.peers.ports import PeerId
from iothub.peers.ticking import TICK_S
from iothub.testing.clock import ManualClock
from tests.support.in_process.paired_wires import LinkedHub, OneEnd, settle
from tests.support.night import by_day

TYPES = (FrameType.REQUEST, FrameType.ANSWER)
sides = st.integers(0, 1)


class TwoHubs(RuleBasedStateMachine):
    """The model: what each side has sent to the other's present incarnation, of which a prefix has been applied."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.hubs = [LinkedHub(self.clock, 1), LinkedHub(self.clock, 2)]
        self.ends: list[OneEnd] = []
        self.sent: dict[tuple[PeerId, PeerId], list[bytes]] = {}
        self.share_rows()
        self.link()

    def link(self) -> None:
        """Let every attempt succeed, and all that is under way arrive."""
        while self.hubs[0].dialer.waiting:
            self.ends += self.hubs[0].connect(self.hubs[1])
        settle(self.ends)

    @rule(side=sides, count=st.integers(1, 5), frame_type=st.sampled_from(TYPES))
    def send(self, side: int, count: int, frame_type: FrameType) -> None:
        hub, other = self.hubs[side], self.hubs[1 - side]
        sent = self.sent.setdefault((hub.id, other.id), [])
        for _ in range(count):
            try:
                hub.links.send(other.id, frame_type, b"%d" % len(sent))
            except UnavailableError:
                assert not sent  # never linked
                return
            sent.append(b"%d" % len(sent))

    @precondition(lambda self: self.ends)
    @rule(which=st.integers(0, 20), share=st.sampled_from((0.2, 0.5, 0.9, 1.0, 1.0)))
    def deliver_a_part(self, which: int, share: float) -> None:
        """What has arrived at one end, cut anywhere."""
        end = self.ends[which % len(self.ends)]
        data = b"".join(end.arrived)
        cut = round(share * len(data))
        end.arrived.clear()
        end.arrived.extend([data[:cut]] if cut else [])
        end.read()
        if data[cut:] and not end.is_closed:
            end.arrived.appendleft(data[cut:])

    @precondition(lambda self: self.ends)
    @rule(which=st.integers(0, 20), loses=st.booleans())
    def break_a_connection(self, which: int, loses: bool) -> None:
        """At one end; the other sees it when it looks, or when it hears nothing."""
        end = self.ends[which % len(self.ends)]
        assert end.other is not None
        if loses:
            end.other.arrived.clear()
        end.close()
        end.end("reset")

    @precondition(lambda self: self.ends)
    @rule(which=st.integers(0, 20))
    def notice_an_end(self, which: int) -> None:
        self.ends[which % len(self.ends)].end()

    @rule(seconds=st.sampled_from((0.02, 0.25, 1.0, 2.1)))
    def wait(self, seconds: float) -> None:
        self.clock.advance(seconds)
        for hub in self.hubs:
            hub.tick_if_due()

    @rule()
    def wait_for_a_link(self) -> None:
        """For long enough that both sides notice what is broken and one dials."""
        for _ in range(3):
            self.wait(1.1)
        self.link()

    @precondition(lambda self: self.hubs[0].dialer.waiting)
    @rule(how=st.sampled_from(("fails", "connects", "links")))
    def answer_an_attempt(self, how: str) -> None:
        if how == "fails":
            self.hubs[0].dialer.waiting.pop(0)[2]("no answer")
        elif how == "connects":
            self.ends += self.hubs[0].connect(self.hubs[1])
        else:
            self.link()

    @rule(side=sides, closes=st.booleans())
    def begin_again(self, side: int, closes: bool) -> None:
        """A process ends, with its connections or without a word, and its successor starts."""
        former = self.hubs[side]
        mine = [end for end in self.ends if end.address == self.hubs[1 - side].row.address or end.address == "unix"]
        owned = [end for end in mine if (end.address == "unix") == (side == 1)]
        for end in owned:
            end.owner = None
            if closes:
                end.close()
        self.ends = [end for end in self.ends if end not in owned]
        self.hubs[side] = LinkedHub(self.clock, former.id.node, former.id.incarnation + 1)

    @rule(side=sides)
    def mute(self, side: int) -> None:
        self.hubs[side].links.mute(self.hubs[1 - side].id)

    @rule(side=sides)
    def unmute(self, side: int) -> None:
        self.hubs[side].links.unmute(self.hubs[1 - side].id)

    @rule()
    def share_rows(self) -> None:
        for hub in self.hubs:
            hub.links.members([each.row for each in self.hubs])

    @invariant()
    def what_was_applied_is_a_prefix_of_what_was_sent(self) -> None:
        for hub, other in (self.hubs, self.hubs[::-1]):
            got = [body for peer, _, body in hub.receiver.frames if peer == other.id]
            sent = self.sent.get((other.id, hub.id), [])
            assert got == sent[: len(got)]

    @invariant()
    def nothing_is_kept_of_a_peer_that_is_gone(self) -> None:
        for hub in self.hubs:
            known = {status.peer for status in hub.links.status()}
            assert known.isdisjoint(hub.receiver.gone)
            assert len(set(hub.receiver.ups)) == len(hub.receiver.ups)

    @invariant()
    def what_is_due_is_never_before_the_next_tick(self) -> None:
        for hub in self.hubs:
            assert hub.ticking.at <= max(hub.links.due(), self.clock.boottime() + TICK_S)

    @invariant()
    def a_tick_before_it_is_due_does_nothing(self) -> None:
        """So `due` names all that waits for time to pass."""
        for hub in self.hubs:
            done = self.done_by(hub)
            hub.links.tick(min(hub.links.due(), self.clock.boottime() + 100.0) - 0.001)
            assert self.done_by(hub) == done

    def done_by(self, hub: LinkedHub) -> object:
        written = [len(end.written) for end in self.ends]
        observer = hub.observer
        noted = [len(each) for each in (observer.ups, observer.downs, observer.refusals, observer.gone)]
        return written, noted, len(hub.dialer.waiting)

    def teardown(self) -> None:
        """Once nothing breaks any more, all that was sent arrives."""
        for side in range(2):
            self.unmute(side)
        for _ in range(40):
            self.share_rows()
            self.wait(0.25)
            self.link()
        for hub, other in (self.hubs, self.hubs[::-1]):
            got = [body for peer, _, body in hub.receiver.frames if peer == other.id]
            assert hub.links.up() == (other.id,)
            assert got == self.sent.get((other.id, hub.id), [])
            assert [status.unacknowledged_bytes for status in hub.links.status()] == [0]


TestTwoHubs = TwoHubs.TestCase
TestTwoHubs.settings = settings(max_examples=by_day(100, 200), stateful_step_count=40, deadline=None)
