"""Why the HELLO of a peer is refused: pure functions, each of which returns None or a reason and one line for a person.

Knows no connection and keeps nothing.
"""

from __future__ import annotations

from typing import TypeAlias

from iothub.base.reasons import PeerRefusal
from iothub.peers.frames import PROTOCOL, Hello
from iothub.peers.ports import Identity

Fault: TypeAlias = tuple[PeerRefusal, str] | None


def fault_of_identity(me: Identity, hello: Hello, certified_node: int | None) -> Fault:
    """Another installation, a version too far away, or a number that is not its own."""
    if hello.installation != me.installation:
        return PeerRefusal.INSTALLATION, f"of installation {hello.installation}, expected {me.installation}"
    if abs(hello.protocol - PROTOCOL) > 1:
        return PeerRefusal.VERSION, f"links of version {hello.protocol}, expected {PROTOCOL}, one less or one more"
    if certified_node is not None and certified_node != hello.node:
        return PeerRefusal.CERTIFICATE, f"node {hello.node} with the certificate of node {certified_node}"
    return None


def fault_of_way(me: Identity, hello: Hello, dialled_node: int | None) -> Fault:
    """Somebody else than was dialled, or who should have been dialled. `dialled_node`: None if the connection was accepted."""
    if hello.node == me.node:
        return PeerRefusal.NUMBER, f"node {hello.node} is {me.name}; give each hub a number of its own"
    if dialled_node is None and hello.node > me.node:
        return PeerRefusal.DIRECTION, f"node {hello.node} dials node {me.node}, expected the other way round"
    if dialled_node is not None and dialled_node != hello.node:
        return PeerRefusal.NODE, f"node {hello.node} at the address of node {dialled_node}; correct cluster.advertise"
    return None


def fault_of_incarnation(hello: Hello, newest: int, floor: int) -> Fault:
    """An earlier life than the newest that is known, or one that is gone: those below `floor` are."""
    if hello.incarnation < max(newest, floor - 1):
        return PeerRefusal.INCARNATION, f"incarnation {hello.incarnation}, a later one is known"
    if hello.incarnation < floor:
        return PeerRefusal.GONE, f"incarnation {hello.incarnation} is gone; it begins again as another one"
    return None
