"""Places that a person leaves out turn what is newer into what is damaged, and nothing else."""

from __future__ import annotations

import pytest

from iothub.base.errors import CorruptRecordError, FutureRecordError
from iothub.records import events
from iothub.records.events import Subject, encode_event
from iothub.records.left_out import decode_at

EXPIRED = events.session_expired(Subject(7, "c", 1, 50))
NEWER = encode_event(EXPIRED).replace(b'"v":1', b'"v":2')


def test_event_of_a_newer_program_is_damaged_at_such_a_place_alone() -> None:
    with pytest.raises(CorruptRecordError, match=r"event of format version 2.*; left out by events.left_out$") as left:
        decode_at(NEWER, 3, 47, ["3:47"])
    assert type(left.value) is CorruptRecordError

    for place in ("3:4", "3:471", "47:3", "0:47"):
        with pytest.raises(FutureRecordError, match=r'if no newer iothub wrote it: events.left_out = \["3:47"\]$'):
            decode_at(NEWER, 3, 47, [place])


def test_what_can_be_read_is_read_and_damage_stays_damage() -> None:
    assert decode_at(encode_event(EXPIRED), 3, 47, ["3:47"]) == EXPIRED
    with pytest.raises(CorruptRecordError, match="it is not JSON"):
        decode_at(b"{", 3, 47, ["3:47"])
