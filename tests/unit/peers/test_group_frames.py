"""The bodies of the frames of shared groups: what comes back, and what is refused."""

from __future__ import annotations

import msgpack
import pytest

from iothub.peers.frames import BadFrameError
from iothub.peers.group_frames import (
    NUMBERS,
    GroupCongested,
    GroupNumbers,
    GroupPublish,
    decode_group_publishes,
    in_frames,
)


def test_each_body_comes_back_as_it_was() -> None:
    sent = [GroupPublish(3, b"g", b"a/#", b"routed"), GroupPublish(0, b"g", b"+", b"")]
    assert decode_group_publishes(b"".join(each.encode() for each in sent)) == sent
    assert GroupNumbers.decode(GroupNumbers((1, 2), (2,)).encode()) == GroupNumbers((1, 2), (2,))
    assert GroupCongested.decode(GroupCongested(7, b"g", b"a/#").encode()) == GroupCongested(7, b"g", b"a/#")


def test_many_numbers_are_parted() -> None:
    """Each part fits into one frame."""
    parts = [GroupNumbers.decode(GroupNumbers(part).encode()) for part in in_frames(range(NUMBERS + 1))]

    assert [len(part.numbers) for part in parts] == [NUMBERS, 1]
    assert list(in_frames([])) == []


@pytest.mark.parametrize(
    "body",
    [
        b"",
        GroupPublish(1, b"g", b"a/#", b"").encode()[:-1],
        GroupPublish(1, b"g", b"a/#", b"routed").encode()[:-1],
        GroupPublish(1, b"g", b"a/#", b"routed").encode() + b"x",
        GroupPublish(1 << 63, b"g", b"a", b"").encode(),
        GroupPublish(1, b"", b"a", b"").encode(),
        GroupPublish(1, b"g/h", b"a", b"").encode(),
        GroupPublish(1, b"g+", b"a", b"").encode(),
        GroupPublish(1, b"g", b"a#", b"").encode(),
        GroupPublish(1, b"g", b"", b"").encode(),
    ],
)
def test_a_message_for_what_is_no_group_is_refused(body: bytes) -> None:
    """A Share Name has at least one character, and none of "/", "+" and "#" [MQTT-4.8.2-1] [MQTT-4.8.2-2]."""
    with pytest.raises(BadFrameError):
        decode_group_publishes(body)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"numbers": [1]},
        {"numbers": [-1], "full": []},
        {"numbers": [True], "full": []},
        {"numbers": [1], "full": 1},
        {"numbers": [0] * (NUMBERS + 1), "full": []},
    ],
)
def test_numbers_that_are_none_are_refused(fields: dict[str, object]) -> None:
    with pytest.raises(BadFrameError):
        GroupNumbers.decode(msgpack.packb(fields))


@pytest.mark.parametrize("wrong", [{"tenant": -1}, {"name": "g"}, {"name": b""}, {"filter": 1}, {"filter": b"#/a"}])
def test_a_congested_group_that_is_none_is_refused(wrong: dict[str, object]) -> None:
    fields = {"tenant": 7, "name": b"g", "filter": b"a/#"} | wrong

    with pytest.raises(BadFrameError):
        GroupCongested.decode(msgpack.packb(fields))
