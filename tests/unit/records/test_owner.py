"""Whose a store is: written, read back, and refused by name when it is damaged, or when the store is of a newer program."""

from __future__ import annotations

import pytest

from iothub.base.errors import ConflictError, CorruptRecordError
from iothub.records.owner import Owner, decode_owner, encode_owner


def test_owner_is_read_as_it_was_written() -> None:
    owner = Owner("0123456789abcdef" * 2, "hübsch", 1_790_000_000_000)

    assert decode_owner(encode_owner(owner), "table t:state") == owner
    assert encode_owner(owner).startswith(b'{"v":1,"installation":"0123')


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"\1",
        b"[]",
        b"{}",
        b"[" * 100_000,
        b'{"v":0,"installation":"a","hub":"b","at":1}',
        b'{"v":"2","installation":"a","hub":"b","at":1}',
        b'{"v":1,"installation":"","hub":"b","at":1}',
        b'{"v":1,"installation":7,"hub":"b","at":1}',
        b'{"v":1,"installation":"a","hub":"\\ud800","at":1}',
        b'{"v":1,"installation":"a","hub":"\xed\xa0\x80","at":1}',
        b'{"v":1,"installation":"a","hub":null,"at":1}',
        b'{"v":1,"installation":"a","hub":"b","at":true}',
    ],
)
def test_damage_is_refused_by_name(value: bytes) -> None:
    with pytest.raises(CorruptRecordError, match=r"^table t:state: the owner record is damaged") as caught:
        decode_owner(value, "table t:state")

    assert "where no other accounts have used it" in str(caught.value)


def test_store_of_a_newer_program_is_refused_before_a_record_is_read() -> None:
    """The start ends with exit code 4."""
    with pytest.raises(
        ConflictError, match=r"a newer iothub has written this store \(its version is 2, this program knows 1\)"
    ):
        decode_owner(b'{"v":2,"installation":"a","hub":"b","at":1}', "topic iothub.installation")
