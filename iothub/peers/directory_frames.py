"""The bodies of the frames of the session directory: who asks for a Client Identifier, who has it, and which hubs there are.

Knows no link and no session.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from iothub.peers.frames import BadFrameError, FrameType, is_number, number_in, pack, truth_in, unpack
from iothub.peers.ports import PeerId
from iothub.peers.view import Key, View

ENTRIES = 4_096  # in one frame
ENTRIES_BYTES = 256 << 10
MEMBERS = 1_024
_CLIENT_ID_BYTES = 65_535


@dataclass(frozen=True, slots=True)
class Hold:
    """A hub asks for a key. `number`: of this question, at this hub; `takes`: whoever has the client connected must close it."""

    TYPE: ClassVar[FrameType] = FrameType.HOLD
    key: Key
    number: int
    takes: bool

    def encode(self) -> bytes:
        return pack({**_named(self.key), "number": self.number, "takes": self.takes})

    @classmethod
    def decode(cls, body: bytes) -> Hold:
        """Raises BadFrameError."""
        fields = _unpack(body)
        return cls(_key(fields), number_in(fields, "number"), truth_in(fields, "takes"))


@dataclass(frozen=True, slots=True)
class Held:
    """The answer to a Hold. `written_s`: seconds since another hub may last have written something about this key to the session log."""

    TYPE: ClassVar[FrameType] = FrameType.HELD
    key: Key
    number: int
    is_granted: bool
    written_s: float

    def encode(self) -> bytes:
        fields = {"number": self.number, "is_granted": self.is_granted, "written_s": self.written_s}
        return pack({**_named(self.key), **fields})

    @classmethod
    def decode(cls, body: bytes) -> Held:
        """Raises BadFrameError."""
        fields = _unpack(body)
        number, is_granted = number_in(fields, "number"), truth_in(fields, "is_granted")
        return cls(_key(fields), number, is_granted, _seconds(fields, "written_s"))


@dataclass(frozen=True, slots=True)
class Release:
    """A hub gives up what it asked for by this number, or has. `has_written`: it has written about a persistent session of this key."""

    TYPE: ClassVar[FrameType] = FrameType.RELEASE
    key: Key
    number: int
    has_written: bool

    def encode(self) -> bytes:
        return pack({**_named(self.key), "number": self.number, "has_written": self.has_written})

    @classmethod
    def decode(cls, body: bytes) -> Release:
        """Raises BadFrameError."""
        fields = _unpack(body)
        return cls(_key(fields), number_in(fields, "number"), truth_in(fields, "has_written"))


@dataclass(frozen=True, slots=True)
class Take:
    """The owner asks a hub to release what it has by this number."""

    TYPE: ClassVar[FrameType] = FrameType.TAKE
    key: Key
    number: int

    def encode(self) -> bytes:
        return pack({**_named(self.key), "number": self.number})

    @classmethod
    def decode(cls, body: bytes) -> Take:
        """Raises BadFrameError."""
        fields = _unpack(body)
        return cls(_key(fields), number_in(fields, "number"))


@dataclass(frozen=True, slots=True)
class Announced:
    """What the sender says from now on is said in this view. `is_whole`: what it said before is forgotten, and comes again."""

    TYPE: ClassVar[FrameType] = FrameType.VIEW
    view: View
    is_whole: bool

    def encode(self) -> bytes:
        members = [list(member) for member in self.view.members]
        return pack({"version": self.view.version, "members": members, "is_whole": self.is_whole})

    @classmethod
    def decode(cls, body: bytes) -> Announced:
        """Raises BadFrameError."""
        fields = unpack(body, items=MEMBERS)
        view = View(number_in(fields, "version"), _members(fields.get("members")))
        return cls(view, truth_in(fields, "is_whole"))


@dataclass(frozen=True, slots=True)
class Entries:
    """Keys that the sender has and the receiver owns, in the sender's view, and the numbers of their holds. `is_last`: these were all."""

    TYPE: ClassVar[FrameType] = FrameType.ENTRIES
    entries: Sequence[tuple[Key, int]]
    is_last: bool

    def encode(self) -> bytes:
        entries = [(key[0], key[1], number) for key, number in self.entries]
        return pack({"entries": entries, "is_last": self.is_last})

    @classmethod
    def decode(cls, body: bytes) -> Entries:
        """Raises BadFrameError."""
        fields = unpack(body, text_bytes=_CLIENT_ID_BYTES, items=ENTRIES)
        return cls(_entries(fields.get("entries")), truth_in(fields, "is_last"))


DirectoryFrame = Hold | Held | Release | Take | Announced | Entries
BODIES: Mapping[FrameType, type[DirectoryFrame]] = {
    each.TYPE: each for each in (Hold, Held, Release, Take, Announced, Entries)
}


def parts(entries: Sequence[tuple[Key, int]], *, is_last: bool) -> Iterator[Entries]:
    """Yield as many frames as these entries need, at least one. `is_last`: these are the last ones, and the last frame says so."""
    first = size = 0
    for at, (key, _) in enumerate(entries):
        if at - first == ENTRIES or (at > first and size + len(key[1]) > ENTRIES_BYTES // 4):  # a character has up to 4
            yield Entries(entries[first:at], is_last=False)
            first, size = at, 0
        size += len(key[1]) + 4
    yield Entries(entries[first:], is_last=is_last)


def _unpack(body: bytes) -> dict[str, object]:
    return unpack(body, text_bytes=_CLIENT_ID_BYTES, items=16)


def _named(key: Key) -> dict[str, object]:
    return {"tenant": key[0], "client": key[1]}


def _key(fields: Mapping[str, object]) -> Key:
    client_id = fields.get("client")
    if not isinstance(client_id, str) or not client_id:
        raise BadFrameError(f"field client is {client_id!r:.40}, expected a Client Identifier")
    return number_in(fields, "tenant"), client_id


def _seconds(fields: Mapping[str, object], name: str) -> float:
    value = fields.get(name)
    if not isinstance(value, float) or math.isnan(value) or value < 0.0:
        raise BadFrameError(f"field {name} is {value!r:.40}, expected seconds")
    return value


def _members(value: object) -> list[PeerId]:
    if not isinstance(value, list) or not value:
        raise BadFrameError(f"field members is {value!r:.40}, expected hubs")
    members = []
    for each in value:
        if not isinstance(each, list) or len(each) != 2 or not all(map(is_number, each)):
            raise BadFrameError(f"field members has {each!r:.40}, expected a node number and an incarnation")
        members.append(PeerId(*each))
    if len(set(members)) < len(members):
        raise BadFrameError("field members has a hub twice")
    return members


def _entries(value: object) -> list[tuple[Key, int]]:
    if not isinstance(value, list):
        raise BadFrameError(f"field entries is {value!r:.40}, expected a list")
    entries: list[tuple[Key, int]] = []
    for each in value:
        if not isinstance(each, list) or len(each) != 3:
            raise BadFrameError(f"field entries has {each!r:.40}, expected a tenant, a Client Identifier and a number")
        tenant_id, client_id, number = each
        if not is_number(tenant_id) or not isinstance(client_id, str) or not client_id or not is_number(number):
            raise BadFrameError(f"field entries has {each!r:.40}, expected a tenant, a Client Identifier and a number")
        entries.append(((tenant_id, client_id), number))
    return entries
