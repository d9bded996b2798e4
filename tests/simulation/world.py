"""Simulated time, network and processes' events: one thread, one seed, the same run each time.

Knows no link: a connection is two ends, each of which belongs to a process.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable
from itertools import count
from typing import Protocol

from iothub.peers.ports import WireOwner

KERNEL_BYTES = 8 << 10  # of one direction of a connection: sent, and not read by the other side
LATENCY_S = 0.002


class Process(Protocol):
    """What a connection's end belongs to."""

    node: int

    def wake(self) -> None: ...

    def pause_here(self) -> None: ...


class World:
    """What happens next, and which directions between nodes are cut. Times in seconds."""

    def __init__(self, seed: int) -> None:
        self.now = 0.0
        self.rng = random.Random(seed)
        self.delay_s = 0.005
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()
        self._cut_until: dict[tuple[int, int], float] = {}

    def after(self, delay_s: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.now + delay_s, next(self._numbers), action))

    def run_until(self, until: float) -> None:
        """Let time pass. A process that is frozen inside a turn calls this from there."""
        while self._events and self._events[0][0] <= until:
            self.now, _, action = heapq.heappop(self._events)
            action()
        self.now = max(self.now, until)

    def cut(self, source: int, target: int, lasts_s: float) -> None:
        """Let nothing through in this direction: it waits, as TCP sends again."""
        until = self.now + lasts_s
        self._cut_until[source, target] = max(until, self._cut_until.get((source, target), 0.0))

    def cut_for_s(self, source: int, target: int) -> float:
        return self._cut_until.get((source, target), 0.0) - self.now

    def heal(self) -> None:
        self._cut_until.clear()
        self.delay_s = 0.005

    def delay(self) -> float:
        return self.rng.random() * self.delay_s


class SimWire:
    """One end of a connection; fulfils `Wire`. `is_over`: its owner knows that it is lost."""

    def __init__(self, world: World, process: Process, address: str, certified_node: int | None) -> None:
        self.address = address
        self.certified_node = certified_node
        self.owner: WireOwner | None = None
        self.other: SimWire = self
        self.process = process
        self.is_closed = self.is_over = False
        self.ended: str | None = None  # why, once all that came before has been read
        self._world = world
        self._unsent = bytearray()
        self._flying: deque[bytes | None] = deque()  # None: the end of the connection
        self._flying_bytes = 0
        self._arrived = bytearray()
        self._is_moving = self._is_swallowed = False
        self._is_final = False  # its end is under way

    def write(self, data: bytes) -> None:
        if not self.is_closed:
            self.process.pause_here()
            self._unsent += data

    def unsent(self) -> int:
        return len(self._unsent)

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            self._arrived.clear()
            self.process.wake()

    def flush(self) -> None:
        """Give the kernel what it takes; once a turn."""
        room = KERNEL_BYTES - self._flying_bytes - len(self.other._arrived)
        if self._unsent and (room > 0 or self.is_closed):
            taken = bytes(self._unsent if self.is_closed else self._unsent[:room])
            del self._unsent[: len(taken)]
            self._flying.append(taken)
            self._flying_bytes += len(taken)
            self._move_later()
        if self.is_closed and not self._is_final:
            self._is_final = True
            self._flying.append(None)
            self._move_later()

    def read(self) -> None:
        """Give the owner what has arrived, all of it or a part."""
        size = len(self._arrived)
        if size and not self.is_closed and self.owner is not None:
            rng = self._world.rng
            data = bytes(self._arrived[: size if rng.random() < 0.7 else rng.randint(1, size)])
            del self._arrived[: len(data)]
            if self.other._unsent:
                self.other.process.wake()
            self.owner.received(data)

    def is_readable(self) -> bool:
        return bool(self._arrived) and not self.is_closed

    def is_ending(self) -> bool:
        return not self.is_over and (self.is_closed or (self.ended is not None and not self._arrived))

    def end(self) -> None:
        """Tell the owner that the connection is over."""
        self.is_over = True
        self.is_closed = True
        if self.owner is not None:
            self.owner.lost(self.ended or "closed")

    def reset(self, reason: str) -> None:
        """Break the connection at this end, with or without what has arrived."""
        if self.ended is None:
            self.ended = reason
            if self._world.rng.random() < 0.5:
                self._arrived.clear()
            self.process.wake()

    def swallow(self) -> None:
        """Carry nothing any more, as when a firewall on the way has forgotten the connection."""
        self._is_swallowed = True

    def vanish(self) -> None:
        """End with the process, without a word."""
        self.is_over = self.is_closed = self._is_final = True
        self._unsent.clear()
        self._flying.clear()

    def _move_later(self) -> None:
        if not self._is_moving:
            self._is_moving = True
            self._world.after(self._world.delay(), self._move)

    def _move(self) -> None:
        world, other = self._world, self.other
        self._is_moving = False
        if self._is_swallowed or not self._flying:
            return
        wait_s = world.cut_for_s(self.process.node, other.process.node)
        if wait_s > 0:
            self._is_moving = True
            world.after(wait_s + world.delay(), self._move)
            return
        chunk = self._flying.popleft()
        if chunk is None:
            other.reset("closed by the other side") if world.rng.random() < 0.3 else other._finish()
        elif not other.is_closed and other.ended is None:
            other._arrived += chunk
            other.process.wake()
        self._flying_bytes -= len(chunk or b"")
        if self._flying:
            self._move_later()

    def _finish(self) -> None:
        if self.ended is None:
            self.ended = "closed by the other side"
            self.process.wake()
