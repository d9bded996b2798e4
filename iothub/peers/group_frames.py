"""The bodies of the frames by which hubs give messages of shared groups to each other's members.

Knows no link, no tenant and no session.

GROUP_PUBLISH is fixed binary, records one after the other: the hub's number of it 8 (0: QoS 0, nobody waits for an answer), length of the group's
name 2, of its Topic Filter 2, of the message 4, name, filter, and the message as `iothub.engine.routed` has it, which is encoded once for all hubs.
The others are msgpack.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from struct import Struct

from iothub.engine.filters import check_topic_filter, join_share, topic_matches
from iothub.engine.message import Message
from iothub.peers.frames import MAX_NUMBER, BadFrameError, number_in, numbers_in, pack, unpack

NUMBERS = 4_096  # in one frame

_HEAD = Struct(">QHHI")
_FILTER_BYTES = _FILTER_LEVELS = 65_535


@dataclass(frozen=True, slots=True)
class GroupPublish:
    """One record: a message for one member of a shared group. `routed`: the message, encoded."""

    number: int
    name: bytes
    filter: bytes
    routed: bytes

    def encode(self) -> bytes:
        head = _HEAD.pack(self.number, len(self.name), len(self.filter), len(self.routed))
        return b"".join((head, self.name, self.filter, self.routed))

    def fits(self, message: Message) -> bool:
        """Tell whether this is a message for the group, with a number as its QoS needs it."""
        return topic_matches(self.filter, message.topic) and (self.number > 0) == (message.qos > 0)


def decode_group_publishes(body: bytes) -> list[GroupPublish]:
    """Return the records of a GROUP_PUBLISH. Raises BadFrameError. The messages are not looked at."""
    found: list[GroupPublish] = []
    at = 0
    while at < len(body):
        if len(body) - at < _HEAD.size:
            raise BadFrameError("a GROUP_PUBLISH that is cut off")
        number, name_bytes, filter_bytes, routed_bytes = _HEAD.unpack_from(body, at)
        name_at = at + _HEAD.size
        filter_at = name_at + name_bytes
        routed_at = filter_at + filter_bytes
        at = routed_at + routed_bytes
        if number > MAX_NUMBER or at > len(body):
            raise BadFrameError("a GROUP_PUBLISH that is cut off")
        publish = GroupPublish(number, body[name_at:filter_at], body[filter_at:routed_at], body[routed_at:at])
        _check_group(publish.name, publish.filter)
        found.append(publish)
    if not found:
        raise BadFrameError("a GROUP_PUBLISH without a message")
    return found


@dataclass(frozen=True, slots=True)
class GroupNumbers:
    """Numbers of GROUP_PUBLISH that one answer is for. `full`: of GROUP_NONE, those that found members without room."""

    numbers: Sequence[int]
    full: Sequence[int] = ()

    def encode(self) -> bytes:
        return pack({"numbers": list(self.numbers), "full": list(self.full)})

    @classmethod
    def decode(cls, body: bytes) -> GroupNumbers:
        """Raises BadFrameError."""
        fields = unpack(body, items=NUMBERS)
        return cls(numbers_in(fields, "numbers"), numbers_in(fields, "full"))


def in_frames(numbers: Sequence[int]) -> Iterator[Sequence[int]]:
    """Yield the numbers in parts that fit into one frame each."""
    for first in range(0, len(numbers), NUMBERS):
        yield numbers[first : first + NUMBERS]


@dataclass(frozen=True, slots=True)
class GroupCongested:
    """Which group's members can take no more for a while."""

    tenant_id: int
    name: bytes
    filter: bytes

    def encode(self) -> bytes:
        return pack({"tenant": self.tenant_id, "name": self.name, "filter": self.filter})

    @classmethod
    def decode(cls, body: bytes) -> GroupCongested:
        """Raises BadFrameError."""
        fields = unpack(body, text_bytes=_FILTER_BYTES)
        name, topic_filter = fields.get("name"), fields.get("filter")
        if not isinstance(name, bytes) or not isinstance(topic_filter, bytes):
            raise BadFrameError(f"a GROUP_CONGESTED with {fields!r:.80}, expected tenant, name and filter")
        _check_group(name, topic_filter)
        return cls(number_in(fields, "tenant"), name, topic_filter)


def _check_group(name: bytes, topic_filter: bytes) -> None:
    shared = join_share(name, topic_filter)
    if b"/" in name or check_topic_filter(shared, _FILTER_LEVELS, _FILTER_BYTES):
        raise BadFrameError(f"{shared!r:.60}, expected a Topic Filter of a shared group")
