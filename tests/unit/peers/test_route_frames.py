"""The bodies of the frames of routes: bounds, parts, and what is refused."""

from __future__ import annotations

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from iothub.peers.frames import BadFrameError
from iothub.peers.route_frames import (
    FILTERS,
    FILTERS_BYTES,
    Opened,
    RouteChange,
    TenantQuestion,
    changes,
    decode_close,
    encode_close,
)


def test_each_body_comes_back_as_it_was() -> None:
    change = RouteChange(7, True, [b"a/#"], [b"b", b"+"], [b"c"])

    assert RouteChange.decode(change.encode()) == change
    assert TenantQuestion.decode(TenantQuestion(7, 3).encode()) == TenantQuestion(7, 3)
    assert Opened.decode(Opened(7, 3, is_open=False).encode()) == Opened(7, 3, is_open=False)
    assert decode_close(encode_close(7)) == 7


def test_many_filters_are_parted_by_number_and_by_size() -> None:
    """Only the first part replaces the whole set; a filter larger than a part stands alone."""
    many = [b"%d" % number for number in range(FILTERS + 1)]
    large = [bytes((97 + number,)) * 60_000 for number in range(6)]

    by_number = [RouteChange.decode(body) for body in changes(1, many, removed=[b"x"], is_whole=True)]
    by_size = [RouteChange.decode(body) for body in changes(1, (), large)]

    assert [(each.is_whole, len(each.everything), each.removed) for each in by_number] == [
        (True, FILTERS, []),
        (False, 1, [b"x"]),
    ]
    assert [len(each.qos0) for each in by_size] == [FILTERS_BYTES // 60_000, 2]


def test_an_empty_set_is_one_part_and_no_change_is_none() -> None:
    assert [RouteChange.decode(body) for body in changes(1, (), is_whole=True)] == [RouteChange(1, True)]
    assert list(changes(1, ())) == []


def body(**fields: object) -> bytes:
    packed: bytes = msgpack.packb(
        {"tenant": 1, "number": 1, "is_open": True, "is_whole": False, "everything": [], "qos0": [], "removed": []}
        | fields
    )
    return packed


@pytest.mark.parametrize(
    "fields",
    [
        {"tenant": -1},
        {"tenant": 1 << 63},
        {"tenant": True},
        {"tenant": "1"},
        {"is_whole": 1},
        {"everything": b"a"},
        {"everything": ["a"]},
        {"qos0": [b""]},
        {"removed": [b"a/#/b"]},
        {"removed": [b"a"] * (FILTERS + 1)},
        {"qos0": [b"a" * 65_536]},
        {"qos0": [b"\xff"]},
    ],
)
def test_routes_outside_their_bounds_are_refused(fields: dict[str, object]) -> None:
    with pytest.raises(BadFrameError):
        RouteChange.decode(body(**fields))


@pytest.mark.parametrize("fields", [{"number": None}, {"number": 1.5}, {"tenant": None}])
def test_an_opening_without_its_numbers_is_refused(fields: dict[str, object]) -> None:
    with pytest.raises(BadFrameError):
        TenantQuestion.decode(body(**fields))
    with pytest.raises(BadFrameError):
        Opened.decode(body(**fields))


def test_an_answer_that_does_not_say_whether_is_refused() -> None:
    with pytest.raises(BadFrameError):
        Opened.decode(body(is_open=None))


@given(st.binary(max_size=60) | st.dictionaries(st.sampled_from(["tenant", "qos0"]), st.binary()).map(msgpack.packb))
def test_any_bytes_are_decoded_or_refused(data: bytes) -> None:
    """Nothing else is raised."""
    refused = 0
    for decode in (RouteChange.decode, TenantQuestion.decode, Opened.decode, decode_close):
        try:
            decode(data)
        except BadFrameError:
            refused += 1

    assert refused >= 3
