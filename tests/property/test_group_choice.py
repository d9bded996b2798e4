"""Whatever members of a shared group do: who is free gets the next message, however many are congested."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from iothub.testing.engine import Bench, Client, ack, packets, publish
from tests.support.night import by_day

STEPS = st.lists(
    st.tuples(
        st.sampled_from(("publish", "publish", "publish at most once", "read", "stick", "ping", "join", "leave")),
        st.integers(0, 5),
    ),
    max_size=40,
)


class Member:
    """A client that reads and acknowledges when it is told to, whose socket may take nothing."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.client.subscribe(b"job", 1, group=b"g")
        self.had = 0

    def is_free(self) -> bool:
        connection = self.client.connection
        return not connection.is_closing and self.client.session.backlog is None and not connection.is_congested

    def has_more(self) -> bool:
        """Whether something came, read or not, since the last call."""
        before = self.had
        waiting = len(self.client.connection.out) + len(self.client.transport.written)
        self.had = waiting + 1_000_000 * self.client.session.backlog_length()
        return self.had > before

    def read(self) -> None:
        """Take what the socket takes now, and acknowledge it."""
        self.client.transport.is_stuck = False
        self.client.transport.flush()
        for header, body in packets(self.client.take()):
            if header >> 4 == 3 and header & 6:
                self.client.connection.feed(ack(0x40, int.from_bytes(body[5:7], "big")))
        self.client.bench.plane.end_batch()


def act(bench: Bench, members: list[Member], step: str, member: Member, number: int) -> None:
    """Do what is no PUBLISH."""
    if step == "read":
        member.read()
    elif step == "stick":
        member.client.transport.is_stuck = True
    elif step == "ping":
        member.client.connection.feed(b"\xc0\x00")
        bench.plane.end_batch()
    elif step == "join":
        members.append(Member(bench.client(f"later{number}", receive_maximum=1)))
    elif len(members) > 1:
        members.remove(member)
        member.client.drop()
        bench.plane.discard(member.client.session)


@given(st.lists(st.integers(1, 3), min_size=1, max_size=4), STEPS)
@settings(max_examples=by_day(150, 300), deadline=None)
def test_who_is_free_gets_the_next_message(receive_maxima: list[int], steps: list[tuple[str, int]]) -> None:
    """Also right after all were congested, in the batch in which one became free, and when one has come."""
    bench = Bench()
    members = [
        Member(bench.client(f"m{number}", receive_maximum=maximum)) for number, maximum in enumerate(receive_maxima)
    ]
    publisher = bench.client("p", inbound_maximum=65535)
    for number, (step, at) in enumerate(steps, 1):
        if not step.startswith("publish"):
            act(bench, members, step, members[at % len(members)], number)
            continue
        for _ in range(at + 1):
            free = [member for member in members if member.is_free()]
            for member in members:
                member.has_more()

            publisher.send(publish(b"job", b"x", 1 if step == "publish" else 0, number))

            getters = [member for member in members if member.has_more()]
            assert len(getters) == 1
            assert not free or getters[0] in free
