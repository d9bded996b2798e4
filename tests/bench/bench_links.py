"""What a message costs that crosses a link, against one that stays on its hub: `PYTHONPATH=. python tests/bench/bench_links.py`.

Two message planes in one process over real links whose wires are lists: the kernel's share is in neither figure. CPU of both hubs together, best
of five rounds; messages of 100 bytes come 64 at a time, as a reading turn brings them.
"""

from __future__ import annotations

from time import process_time

from iothub.peers.routed_peer import ROUTE_TYPES
from iothub.peers.routes import MESSAGE_TYPES, Routes
from iothub.peers.ticking import TICK_S
from iothub.testing.clock import ManualClock
from iothub.testing.engine import Bench, Client, ack, publish
from tests.support.in_process.paired_wires import LinkedHub, OneEnd, settle

_TURN = 64
_TURNS = 400
_ROUNDS = 5


class _Buffer(bytearray):
    """What a wire has written: nobody reads it here."""

    def __iadd__(self, data: bytes) -> _Buffer:  # type: ignore[override,misc]
        return self


class Hub:
    """One hub: a plane and a link."""

    def __init__(self, clock: ManualClock, node: int) -> None:
        self.linked = LinkedHub(clock, node)
        self.bench = Bench()
        self.soon: list[object] = []
        self.routes = Routes(self.linked.links, self.bench.plane, self.soon.append)
        self.linked.links.register(ROUTE_TYPES, self.routes, is_waited_for=True)
        self.linked.links.register(MESSAGE_TYPES, self.routes)
        self.linked.links.watch(self.routes.acknowledged)

    def end_turn(self) -> None:
        soon, self.soon[:] = list(self.soon), []
        for call in soon:
            call()  # type: ignore[operator]
        self.bench.plane.end_batch()


class Pair:
    """Two linked hubs, both with the tenant open."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.one, self.two = Hub(self.clock, 1), Hub(self.clock, 2)
        self.one.linked.links.members([self.two.linked.row])
        self.two.linked.links.members([self.one.linked.row])
        self.ends: tuple[OneEnd, OneEnd] = self.one.linked.connect(self.two.linked)
        for end in self.ends:
            end.written = _Buffer()  # type: ignore[assignment]
        self.settle()
        for hub in (self.one, self.two):
            hub.routes.open_tenant(hub.bench.tenant)
        self.settle()

    def settle(self) -> None:
        for _ in range(3):
            settle(self.ends)
            self.one.end_turn()
            self.two.end_turn()
            self.clock.advance(TICK_S)
            for hub in (self.one, self.two):
                hub.linked.links.tick(self.clock.boottime())


def _acknowledge(client: Client) -> int:
    """Take what came, and acknowledge QoS 1; return how many messages there were."""
    data = client.take()
    at = count = 0
    answers = bytearray()
    while at < len(data):
        count += 1
        if data[at] & 6:
            topic_end = at + 4 + int.from_bytes(data[at + 2 : at + 4], "big")
            answers += ack(0x40, int.from_bytes(data[topic_end : topic_end + 2], "big"))
        at += 2 + data[at + 1]
    if answers:
        client.send(bytes(answers))
    return count


def _seconds(qos: int, *, over_link: bool, group: bytes | None = None) -> float:
    pair = Pair()
    publisher = pair.one.bench.client("p")
    subscriber = (pair.two if over_link else pair.one).bench.client("s")
    subscriber.subscribe(b"a/b", qos, group=group)
    pair.settle()
    frame = b"".join(publish(b"a/b", b"x" * 90, qos, number + 1 if qos else 0) for number in range(_TURN))
    best = float("inf")
    received = 0
    for _ in range(_ROUNDS):
        spent = 0.0
        for _ in range(_TURNS):
            began = process_time()
            publisher.send(frame)
            pair.one.end_turn()
            settle(pair.ends)
            pair.two.end_turn()
            spent += process_time() - began
            received += _acknowledge(subscriber)
            publisher.take()
            pair.settle()
        best = min(best, spent / (_TURN * _TURNS))
    assert received == _TURN * _TURNS * _ROUNDS, received
    return best


def main() -> None:
    for qos in (0, 1):
        one, link = _seconds(qos, over_link=False), _seconds(qos, over_link=True)
        print(f"QoS {qos}: one hub {one * 1e6:.2f} us, over a link {link * 1e6:.2f} us, {link / one:.1f} times")
        shared = _seconds(qos, over_link=True, group=b"g")
        print(f"QoS {qos}: to a member of a shared group over a link {shared * 1e6:.2f} us")


if __name__ == "__main__":
    main()
