"""Which hubs there are, and which of them keeps the entry of a Client Identifier: rendezvous hashing, the same at every hub.

Knows no link. Of two views that differ in one hub, only that hub's keys have different owners.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

from iothub.peers.ports import PeerId

Key = tuple[int, str]
"""Tenant id and Client Identifier."""

_MASK = (1 << 64) - 1
_FACTOR = 0x9E37_79B9_7F4A_7C15  # odd, with its bits spread: what a product's upper half depends on


class View:
    """The hubs that there are, this one among them.

    `version`: of who there is, as the accounts had it. Between two views with the same members another hub may have been there, and may have been
    the owner: they differ.
    """

    __slots__ = ("_seeds", "members", "version")

    def __init__(self, version: int, members: Sequence[PeerId]) -> None:
        self.version = version
        self.members = tuple(sorted(members))
        self._seeds = [(_hash(b"%d %d" % member), member) for member in self.members]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, View) and (self.version, self.members) == (other.version, other.members)

    def __hash__(self) -> int:
        return hash((self.version, self.members))

    def __repr__(self) -> str:
        return f"View({self.version}, {self.members})"

    def owner(self, key: Key) -> PeerId:
        """Return who keeps the entry of a key: the hub with the highest weight for it. Raises ValueError: there are no members."""
        number = _number(key)
        return max(self._seeds, key=lambda seed: _mix(seed[0] ^ number))[1]

    def ranked(self, key: Key) -> list[PeerId]:
        """Return all hubs by their weights for a key, the owner first."""
        number = _number(key)
        return [member for _, member in sorted(self._seeds, key=lambda seed: -_mix(seed[0] ^ number))]


def _number(key: Key) -> int:
    return _hash(b"%d %b" % (key[0], key[1].encode()))


def _hash(name: bytes) -> int:
    return int.from_bytes(blake2b(name, digest_size=8).digest(), "big")


def _mix(number: int) -> int:
    """Return a weight of which every bit depends on all of the number's."""
    number = (number * _FACTOR) & _MASK
    number ^= number >> 32
    return (number * _FACTOR) & _MASK
