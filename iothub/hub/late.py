"""Parts that are needed by others which are made before them: the one place where a real circle of the composition is broken.

Knows no part. These circles are real:

- The message plane hands packets to the control plane, which answers through the message plane.
- The stores of the message plane, queues and streams, are below it, and answer to it.
- Brokers are made over the message plane, and the queues below it report what is stored to them.
- The queues report claims that another hub has overtaken, and queues that are lost, to cluster and sessions, which work above them.
- The sessions ask their directory, which asks them to close a client that connects to another hub.
- The cluster applies events of other hubs to the sessions, which ask the cluster.
- Links to other hubs belong to the cluster, and their sockets to the listeners, which are made over the message plane.
- A hub that was replaced is ended by what runs all its parts.

One value comes late: accounts on a server name the installation when they answer, and what uses Redis, made before, has it in its keys. Everything
else is made in an order in which whoever is needed is there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from iothub.base.reasons import Reason
from iothub.engine.ports import Control
from iothub.engine.state import Connection

T = TypeVar("T")


class LateBound(Generic[T]):
    """A part that is made later. Calling it returns the part. Invariant: it is bound once, before its first call."""

    __slots__ = ("_name", "_part")

    def __init__(self, name: str) -> None:
        self._name = name
        self._part: T | None = None

    def bind(self, part: T) -> T:
        if self._part is not None:
            raise AssertionError(f"{self._name} is bound already")
        self._part = part
        return part

    def __call__(self) -> T:
        if self._part is None:
            raise AssertionError(f"{self._name} is not there yet")
        return self._part


class LateControl:
    """Fulfils `iothub.engine.ports.Control` for a message plane that is made before its control plane.

    It has the methods of the control plane itself: every connection calls them several times. Invariant: it is bound before the first connection.
    """

    __slots__ = ("closed", "opened", "packet")

    def bind(self, control: Control) -> None:
        self.opened: Callable[[Connection], None] = control.opened
        self.packet: Callable[[Connection, int, bytes], None] = control.packet
        self.closed: Callable[[Connection, Reason], None] = control.closed
