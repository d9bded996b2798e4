"""The bytes of a link: frames behind their lengths, and what stands in a HELLO.

Knows no connection and no peer: sans I/O, the same for both sides.

    1 byte type | 4 bytes length, big-endian | body

Types from 64 on are reliable: 8 bytes of number stand before the body, and count for the length. A body is msgpack, with a bound on
every text and list, or fixed binary where the type says so. `iothub/peers/framing.py` cuts frames out of what is read. Invariant: whatever the bytes
are, a decoder answers with what they say, or with `BadFrameError`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from struct import Struct
from typing import TypeGuard

import msgpack

from iothub.base.errors import IotHubError

PROTOCOL = 2  # what this program speaks; it talks to those of one version less or more
CLOCK_PROTOCOL = 2  # from which on an ECHO has the time of whoever sends it
RELIABLE_FROM = 64
MAX_NUMBER = (1 << 63) - 1  # of a field
HELLO_BYTES = 16 << 10  # of a frame from somebody who has not said who it is

_HEADER = Struct(">BI")
_NUMBERED_HEADER = Struct(">BIQ")
_NUMBER_BYTES = 8
_MAX_U64 = (1 << 64) - 1  # of the numbers in a HELLO
_TEXT_BYTES = 1 << 20  # of one text or bytes in a body; a whole body is bounded by the frame
_ITEMS = 1 << 16
_NAME_CHARS = 255
_DETAIL_CHARS = 500


class BadFrameError(IotHubError):
    """The other side does not speak this protocol, or breaks it: its link closes."""


class FrameType(IntEnum):
    """What a frame is. Below `RELIABLE_FROM` a frame goes first, has no number, and is gone with its connection."""

    HELLO = 1
    REFUSED = 2  # msgpack {"reason", "detail"}; the connection closes after it
    PING = 3  # 8 bytes: the sender's clock in ns, opaque to the other side
    ECHO = 4  # the same 8 bytes back, and two times of 8 bytes in ms: the clock of the sender's machine, and what the sender goes by
    ACK = 5  # 8 bytes: the last number applied
    LEAVING = 6  # empty: this hub stops; the connection closes after it
    REQUEST = 64  # msgpack {"id", "verb", "tenant", "argument"}
    ROWS = 65  # msgpack {"id", "rows"}
    ANSWER = 66  # msgpack {"id", "result"} or {"id", "error", "exit_code", "details"}
    CANCEL = 67  # msgpack {"id"}: the asker does not wait any more
    OPEN = 70  # msgpack {"tenant", "number"}: this hub has the tenant open, and asks for the routes
    OPENED = (
        71  # msgpack {"tenant", "number", "is_open", "place"}: the answer; the whole set of routes stands before it
    )
    CLOSE = 72  # msgpack {"tenant"}
    ROUTE = 73  # msgpack {"tenant", "is_whole", "everything", "qos0", "removed"}
    PUBLISH = 74  # see `iothub.engine.routed`
    KNOW = (
        80  # msgpack {"tenant", "place"}: clients of the tenant wait until that hub knows the session log up to there
    )
    KNOWN = 81  # msgpack {"place"}: how far this hub has applied the log
    QUEUED = 82  # stored for sessions whose clients that hub has; see `iothub.peers.queued_frames`
    PAUSED = (
        83  # msgpack {"tenant", "place"}: this hub publishes nothing of the tenant before it knows the log up to there
    )
    RETAINED = 84  # msgpack {"tenant", "topic", "version", "expires_at_ms", "size"}: a retained write is durable; size 0: deleted
    SYNC = 85  # msgpack {"tenant", "number"}: which retained writes are on their way?
    SYNCED = (
        86  # msgpack {"tenant", "number", "is_settled", "is_complete"}: at once, and once they are durable and told
    )
    ACCOUNTS = 87  # msgpack {"change"}: this hub has read the change log of the accounts up to there
    GROUP_CONGESTED = 88  # msgpack {"tenant", "group"}: members of a shared group here can take no more for a while
    GROUP_PUBLISH = 89  # for one member of a shared group; see `iothub.peers.group_frames`
    GROUP_DONE = 90  # msgpack {"numbers"}: of GROUP_PUBLISH: nobody else may have them
    GROUP_NONE = 91  # msgpack {"numbers", "full"}: nobody here takes them; `full`: of those, for lack of room
    GROUP_TAKEN = 92  # msgpack {"numbers"}: as soon as this is acknowledged, a client gets them with QoS 2
    BANNED = 93  # msgpack {"bans"}: [tenant, device, source, left_s], banned after failed logins
    HOLD = 96  # msgpack {"tenant", "client", "number", "takes"}: this hub asks for a Client Identifier
    HELD = 97  # msgpack {"tenant", "client", "number", "is_granted", "written_s"}: the answer
    RELEASE = 98  # msgpack {"tenant", "client", "number", "has_written"}: this hub has, or wants, it no more
    TAKE = 99  # msgpack {"tenant", "client", "number"}: another hub asks for it: release it
    WILL = 100  # msgpack {"tenant", "client", "id", "before", "will"}: keep this Will, or keep it no more
    VIEW = 101  # msgpack {"version", "members", "is_whole"}: which hubs are there, as this hub sees it from now on
    ENTRIES = 102  # msgpack {"entries", "is_last"}: what this hub holds of the receiver's part


TYPES = {int(each): each for each in FrameType}


@dataclass(frozen=True, slots=True)
class Hello:
    """The first frame of either side.

    `features`: the reliable types that the sender understands; `knows`: (the receiver's incarnation as the sender last met it,
    the last number of the receiver's that the sender has applied), None if they never met.
    """

    protocol: int
    installation: str
    node: int
    incarnation: int
    name: str
    version: str
    features: tuple[int, ...]
    knows: tuple[int, int] | None

    def encode(self) -> bytes:
        fields = {name: getattr(self, name) for name in self.__slots__}
        return encode(FrameType.HELLO, pack(fields))

    @classmethod
    def decode(cls, body: bytes) -> Hello:
        """Fields that a later version adds are passed over. Raises BadFrameError."""
        fields = unpack(body)
        return cls(
            protocol=number_in(fields, "protocol", _MAX_U64),
            installation=_text(fields, "installation"),
            node=number_in(fields, "node", 65535),
            incarnation=number_in(fields, "incarnation", _MAX_U64),
            name=_text(fields, "name"),
            version=_text(fields, "version"),
            features=_features(fields.get("features")),
            knows=_knows(fields.get("knows")),
        )


def encode(frame_type: FrameType, body: bytes, number: int = 0) -> bytes:
    """Return a frame's bytes; `number`: of a reliable one, from 1 on."""
    if frame_type >= RELIABLE_FROM:
        return _NUMBERED_HEADER.pack(frame_type, _NUMBER_BYTES + len(body), number) + body
    return _HEADER.pack(frame_type, len(body)) + body


def number_frame(frame_type: FrameType, number: int) -> bytes:
    """Return a PING, or an ECHO without a time."""
    return encode(frame_type, number.to_bytes(_NUMBER_BYTES, "big"))


def echo_frame(number: int, times_ms: tuple[int, int]) -> bytes:
    """Return an ECHO with the times of this hub: its machine's, and what it goes by."""
    return encode(FrameType.ECHO, b"".join(each.to_bytes(_NUMBER_BYTES, "big") for each in (number, *times_ms)))


def echo_of(body: bytes) -> tuple[int, tuple[int, int] | None]:
    """Return the number of the PING, and the times of whoever echoes it; None: its links are of version 1. Raises BadFrameError."""
    if len(body) == 3 * _NUMBER_BYTES:
        number, *times_ms = (
            int.from_bytes(body[at : at + _NUMBER_BYTES], "big") for at in range(0, len(body), _NUMBER_BYTES)
        )
        return number, (times_ms[0], times_ms[1])
    return number_of(FrameType.ECHO, body), None


def number_of(frame_type: FrameType, body: bytes) -> int:
    """Return what `number_frame` was given. Raises BadFrameError."""
    if len(body) != _NUMBER_BYTES:
        raise BadFrameError(f"a frame of type {frame_type.name} with {len(body)} bytes, expected {_NUMBER_BYTES}")
    return int.from_bytes(body, "big")


def ack_frame(applied: int, sent: int) -> bytes:
    """Return an ACK: all frames up to `applied` are applied, and before that frames up to `sent` were sent the other way."""
    return encode(FrameType.ACK, applied.to_bytes(_NUMBER_BYTES, "big") + sent.to_bytes(_NUMBER_BYTES, "big"))


def ack_of(body: bytes) -> tuple[int, int]:
    """Return what `ack_frame` was given. Raises BadFrameError."""
    if len(body) != 2 * _NUMBER_BYTES:
        raise BadFrameError(f"a frame of type ACK with {len(body)} bytes, expected {2 * _NUMBER_BYTES}")
    return int.from_bytes(body[:_NUMBER_BYTES], "big"), int.from_bytes(body[_NUMBER_BYTES:], "big")


def refused_frame(reason: str, detail: str) -> bytes:
    return encode(FrameType.REFUSED, pack({"reason": reason, "detail": detail[:_DETAIL_CHARS]}))


def refusal_of(body: bytes) -> tuple[str, str]:
    """Return reason and detail. Raises BadFrameError."""
    fields = unpack(body)
    return _text(fields, "reason"), _text(fields, "detail", _DETAIL_CHARS)


def pack(value: Mapping[str, object]) -> bytes:
    packed: bytes = msgpack.packb(value)
    return packed


def unpack(body: bytes, *, text_bytes: int = _TEXT_BYTES, items: int = _ITEMS) -> dict[str, object]:
    """Return the map that a body is. `text_bytes`: of each text or bytes in it; `items`: of each list or map. Raises BadFrameError."""
    try:
        value = msgpack.unpackb(
            body,
            strict_map_key=True,
            max_str_len=text_bytes,
            max_bin_len=text_bytes,
            max_array_len=items,
            max_map_len=items,
            max_ext_len=0,
        )
    except (
        ValueError,
        RecursionError,
        msgpack.UnpackException,
    ) as error:  # ValueError: a bound, no UTF-8, bytes after it
        raise BadFrameError(f"a body that cannot be read, expected msgpack within its bounds: {error}") from None
    if not isinstance(value, dict) or not all(isinstance(name, str) for name in value):
        raise BadFrameError("a body without a map, expected one of named fields")
    return value


def number_in(fields: Mapping[str, object], name: str, at_most: int = MAX_NUMBER) -> int:
    """Return a field that is a number. Raises BadFrameError."""
    value = fields.get(name)
    if not is_number(value, at_most):
        raise BadFrameError(f"field {name} is {value!r:.40}, expected a number of at most {at_most}")
    return value


def numbers_in(fields: Mapping[str, object], name: str) -> tuple[int, ...]:
    """Return a field that is a list of numbers. Raises BadFrameError."""
    value = fields.get(name)
    if not isinstance(value, list) or not all(map(is_number, value)):
        raise BadFrameError(f"field {name} is {value!r:.40}, expected a list of numbers")
    return tuple(value)


def truth_in(fields: Mapping[str, object], name: str) -> bool:
    """Return a field that is true or false. Raises BadFrameError."""
    value = fields.get(name)
    if not isinstance(value, bool):
        raise BadFrameError(f"field {name} is {value!r:.40}, expected true or false")
    return value


def is_number(value: object, at_most: int = MAX_NUMBER) -> TypeGuard[int]:
    """Tell whether it is a number within its bound, not true or false."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= at_most


def _text(fields: Mapping[str, object], name: str, at_most: int = _NAME_CHARS) -> str:
    value = fields.get(name)
    if not isinstance(value, str) or len(value) > at_most:
        raise BadFrameError(f"field {name} is {value!r:.40}, expected a text of at most {at_most} characters")
    return value


def _features(value: object) -> tuple[int, ...]:
    if not isinstance(value, list) or len(value) > 256 or not all(is_number(each, 255) for each in value):
        raise BadFrameError(f"field features is {value!r:.40}, expected at most 256 types")
    return tuple(value)


def _knows(value: object) -> tuple[int, int] | None:
    if value is None:
        return None
    if not isinstance(value, list) or len(value) != 2 or not all(is_number(each, _MAX_U64) for each in value):
        raise BadFrameError(f"field knows is {value!r:.40}, expected an incarnation and a number, or nothing")
    return value[0], value[1]
