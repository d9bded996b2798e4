"""Session directories of some hubs, on a net that delivers a frame when the test says so."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from iothub.peers.directory import TURN_KEYS, Directory
from iothub.peers.frames import FrameType
from iothub.peers.ports import PeerId
from iothub.peers.view import Key, View

ONE, TWO, THREE = PeerId(1, 1), PeerId(2, 1), PeerId(3, 1)
ALL = (ONE, TWO, THREE)


def key_of(owner: PeerId, *members: PeerId) -> Key:
    """A key that this hub owns among these."""
    view = View(0, members or ALL)
    return next(key for key in ((1, f"c{number}") for number in range(1_000)) if view.owner(key) == owner)


class Hub:
    """A directory with its clients; `closing`: who is being closed, until `finish`. Fulfils `Clients`, `Announcer` and `BootClock`."""

    def __init__(self, net: Net, me: PeerId) -> None:
        self.id = me
        self.net = net
        self.connected: set[Key] = set()
        self.in_use: set[Key] = set()
        self.closing: dict[Key, Callable[[bool], None]] = {}
        self.hurried: list[Key] = []
        self.sent: list[FrameType] = []
        self.connected_at: dict[Key, float] = {}
        self.directory = Directory(me, self, self, self, net.soon.append, net.turn_keys, lambda: net.now)

    def boottime(self) -> float:
        return self.net.now

    def announce(self, peer: PeerId, frame_type: FrameType, body: bytes) -> int:
        self.sent.append(frame_type)
        self.net.frames.append((self.id, peer, frame_type, body))
        return len(self.sent)

    def is_connected(self, key: Key) -> bool:
        return key in self.connected

    def connected_at_ms(self, key: Key) -> int:
        return int(self.connected_at.get(key, 0.0) * 1000) if key in self.connected else 0

    def connected_keys(self) -> Iterable[Key]:
        return (key for key in sorted(self.connected) if key in self.connected)

    def keys_in_use(self) -> Iterable[Key]:
        return self.in_use

    def leave(self, key: Key, on_left: Callable[[bool], None]) -> None:
        self.connected.discard(key)
        self.closing[key] = on_left

    def hurry(self, key: Key) -> None:
        self.hurried.append(key)

    def finish(self, key: Key, *, has_written: bool = False) -> None:
        self.closing.pop(key)(has_written)
        self.net.settle()

    def hold(self, key: Key, *, takes: bool = True) -> list[float | None]:
        answers: list[float | None] = []
        self.directory.hold(key, answers.append, takes=takes)
        self.net.settle()
        return answers

    def connect(self, key: Key) -> None:
        """A CONNECT that nothing holds up."""
        assert self.hold(key)
        self.connected.add(key)
        self.connected_at[key] = self.net.now
        self.directory.let_go(key)

    def disconnect(self, key: Key) -> None:
        self.connected.remove(key)
        self.directory.left(key)

    def see(self, *members: PeerId, version: int = 0) -> None:
        self.directory.set_view(View(version, members))
        self.net.settle()


class Net:
    """Hubs that are all linked; frames arrive with `settle`, but those to and from `silent` hubs wait."""

    def __init__(self, *ids: PeerId, turn_keys: int = TURN_KEYS) -> None:
        self.now = 100.0
        self.turn_keys = turn_keys
        self.frames: deque[tuple[PeerId, PeerId, FrameType, bytes]] = deque()
        self.silent: set[PeerId] = set()
        self.soon: list[Callable[[], None]] = []
        self.hubs = {each: Hub(self, each) for each in ids}
        for hub in self.hubs.values():
            for other in ids:
                if other != hub.id:
                    hub.directory.peer_up(other)

    def settle(self) -> None:
        waiting: list[tuple[PeerId, PeerId, FrameType, bytes]] = []
        while self.frames:
            source, target, frame_type, body = frame = self.frames.popleft()
            if self.silent & {source, target}:
                waiting.append(frame)
            elif target in self.hubs and source in self.hubs:
                self.hubs[target].directory.frame(source, frame_type, body)
        self.frames.extend(waiting)

    def turn(self) -> None:
        """Another turn at all hubs."""
        soon = list(self.soon)
        self.soon.clear()
        for call in soon:
            call()
        self.settle()

    def kill(self, peer: PeerId) -> None:
        del self.hubs[peer]
        for hub in self.hubs.values():
            hub.directory.peer_gone(peer)
        self.settle()


def cluster(*ids: PeerId) -> list[Hub]:
    net = Net(*ids)
    for hub in net.hubs.values():
        hub.directory.set_view(View(0, ids))
    net.settle()
    return list(net.hubs.values())
