"""Which hubs there are, and which of them keeps the entry of a Client Identifier: rendezvous hashing, the same at every hub.

Knows no link. Keys are spread over slots, and each slot has an owner: what moves when hubs come and go is found without a look at each key.
Of two views that differ in one hub, only that hub's slots have different owners.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from functools import lru_cache
from hashlib import blake2b
from zlib import crc32

from iothub.peers.ports import PeerId

Key = tuple[int, str]
"""Tenant id and Client Identifier."""

SLOTS = 4_096

_MASK = (1 << 64) - 1
_FACTOR = 0x9E37_79B9_7F4A_7C15  # odd, with its bits spread: what a product's upper half depends on


def slot_of(key: Key) -> int:
    return crc32(key[1].encode(), key[0] & 0xFFFF_FFFF) % SLOTS


class View:
    """The hubs that there are, this one among them.

    `version`: of who there is, as the accounts had it. Between two views with the same members another hub may have been there, and may have been
    the owner: they differ.
    """

    __slots__ = ("members", "version")

    def __init__(self, version: int, members: Iterable[PeerId]) -> None:
        self.version = version
        self.members = tuple(sorted(members))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, View) and (self.version, self.members) == (other.version, other.members)

    def __hash__(self) -> int:
        return hash((self.version, self.members))

    def __repr__(self) -> str:
        return f"View({self.version}, {self.members})"

    def owner(self, key: Key) -> PeerId:
        """Return who keeps the entry of a key. Raises ValueError: there are no members."""
        return _owners(self.members)[slot_of(key)]

    def owners(self) -> Sequence[PeerId]:
        """Return who keeps the entries of each slot: the hub with the highest weight for it. Raises ValueError: there are no members."""
        return _owners(self.members)

    def ranked(self, key: Key) -> list[PeerId]:
        """Return all hubs by their weights for a key, the owner first."""
        slot = slot_of(key)
        return sorted(self.members, key=lambda member: -_weights(member)[slot])


@lru_cache(maxsize=32)  # a few views are in force at a time
def _owners(members: tuple[PeerId, ...]) -> Sequence[PeerId]:
    if not members:
        raise ValueError("a view without a hub")
    weights = zip(*map(_weights, members), strict=True)
    return [members[of_slot.index(max(of_slot))] for of_slot in weights]


@lru_cache(maxsize=256)  # 32 KiB each
def _weights(member: PeerId) -> Sequence[int]:
    """Return a hub's weight for each slot."""
    seed = _hash(b"%d %d" % member)
    return array("Q", [_mix(seed ^ number) for number in _slot_numbers()])


@lru_cache(maxsize=1)
def _slot_numbers() -> Sequence[int]:
    return array("Q", [_hash(b"%d" % slot) for slot in range(SLOTS)])


def _hash(name: bytes) -> int:
    return int.from_bytes(blake2b(name, digest_size=8).digest(), "big")


def _mix(number: int) -> int:
    """Return a weight of which every bit depends on all of the number's."""
    number = (number * _FACTOR) & _MASK
    number ^= number >> 32
    return (number * _FACTOR) & _MASK
