"""The stored forms of a checkpoint: golden bytes, what is refused, and a checksum that does not ask for an order."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iothub.base.errors import CorruptRecordError
from iothub.records.checkpoint import (
    Pointer,
    add_checksums,
    checkpoint_version,
    decode_pointer,
    decode_row,
    encode_pointer,
    encode_row,
    row_checksum,
)

POINTER = Pointer(1876951040000000007, ((1 << 40) + 5, 1 << 40), 3, 0x00AB, 1_790_000_000_000)
GOLDEN_POINTER_V1 = (
    b'{"v":1,"version":1876951040000000007,"generation":1,"offsets":[1099511627781,1099511627776],"rows":3,'
    b'"checksum":"00000000000000ab","at":1790000000000}'
)
GOLDEN_ROW_V1 = bytes.fromhex("01" + "0000000000000009") + b'{"v":1}'

rows = st.tuples(
    st.integers(0, (1 << 32) - 1), st.text(max_size=5), st.integers(0, (1 << 63) - 1), st.binary(max_size=9)
)


def test_golden_pointer_of_version_1_is_written_and_read() -> None:
    """These bytes never change: a swap compares them."""
    assert encode_pointer(POINTER) == GOLDEN_POINTER_V1
    assert decode_pointer(GOLDEN_POINTER_V1) == POINTER


def test_golden_row_of_version_1_is_written_and_read() -> None:
    assert encode_row(9, b'{"v":1}') == GOLDEN_ROW_V1
    assert decode_row(GOLDEN_ROW_V1) == (9, b'{"v":1}')


@pytest.mark.parametrize(
    "changed",
    [
        {"offsets": []},
        {"offsets": [-1]},
        {"offsets": ["1"]},
        {"generation": 0},
        {"rows": None},
        {"version": True},
        {"checksum": "x"},
        {"v": "1"},
        {"v": 0},
    ],
    ids=str,
)
def test_damaged_pointer_is_refused(changed: dict[str, object]) -> None:
    """Never misread: a start goes on without the checkpoint."""
    with pytest.raises(CorruptRecordError):
        decode_pointer(json.dumps({**json.loads(GOLDEN_POINTER_V1), **changed}).encode())


@pytest.mark.parametrize("value", [b"", b"[]", b"{", b"null", b"\xff"])
def test_what_is_no_pointer_is_refused(value: bytes) -> None:
    with pytest.raises(CorruptRecordError, match="damaged checkpoint pointer"):
        decode_pointer(value)


def test_checkpoint_of_another_version_is_damaged() -> None:
    with pytest.raises(CorruptRecordError, match=r"damaged checkpoint pointer \(format version 2, expected 1\)"):
        decode_pointer(GOLDEN_POINTER_V1.replace(b'"v":1', b'"v":2'))
    with pytest.raises(CorruptRecordError, match=r"damaged row of a checkpoint \(format version 9, expected 1\)"):
        decode_row(b"\x09" + GOLDEN_ROW_V1[1:])


@pytest.mark.parametrize("value", [b"", GOLDEN_ROW_V1[:9], b"\x00" + GOLDEN_ROW_V1[1:]])
def test_damaged_row_is_refused(value: bytes) -> None:
    with pytest.raises(CorruptRecordError, match="row of a checkpoint"):
        decode_row(value)


def test_version_rises_with_time_and_differs_by_run() -> None:
    """Two jobs in the same millisecond write apart from each other; 64 bits hold it."""
    assert checkpoint_version(1_790_000_000_000, 7) == 1876951040000000007
    assert checkpoint_version(2, 0) > checkpoint_version(1, (1 << 20) - 1)
    assert checkpoint_version(1, 1 << 20) == checkpoint_version(1, 0)
    assert checkpoint_version(1 << 42, 0) < 1 << 63


def test_golden_checksum_of_a_row() -> None:
    """Every job and every hub must find the same."""
    assert f"{row_checksum(7, 'métér', 9, b'record'):016x}" == "65fd06b54dfa7711"


@settings(max_examples=100, deadline=None)
@given(st.lists(rows, unique=True, max_size=12), st.randoms())
def test_checksum_is_that_of_any_order_and_any_parts(some: list[tuple[int, str, int, bytes]], random: object) -> None:
    """Workers sum up their own rows, and somebody adds the sums."""
    whole = add_checksums(row_checksum(*row) for row in some)
    shuffled = list(some)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    half = len(some) // 2
    parts = [add_checksums(row_checksum(*row) for row in part) for part in (shuffled[:half], shuffled[half:])]

    assert add_checksums(parts) == whole
    assert 0 <= whole < 1 << 64
    if some:
        assert add_checksums((whole, row_checksum(*some[0]))) != whole
