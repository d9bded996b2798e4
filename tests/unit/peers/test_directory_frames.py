"""The bodies of the frames of the session directory: bounds, parts, and what is refused."""

from __future__ import annotations

import math

import msgpack
import pytest

from iothub.peers.directory_frames import (
    BODIES,
    ENTRIES,
    ENTRIES_BYTES,
    Announced,
    DirectoryFrame,
    Entries,
    Held,
    Hold,
    Release,
    Take,
    parts,
)
from iothub.peers.frames import BadFrameError
from iothub.peers.ports import PeerId
from iothub.peers.view import View

KEY = (7, "client")


@pytest.mark.parametrize(
    "frame",
    [
        Hold(KEY, 3, takes=False),
        Held(KEY, 3, is_granted=True, written_s=math.inf),
        Release(KEY, 3, has_written=True),
        Take(KEY, 3),
        Announced(View(2, [PeerId(2, 1), PeerId(1, 5)]), is_whole=False),
        Entries([(KEY, 3), ((8, "ä"), 4)], is_last=False),
    ],
)
def test_each_body_comes_back_as_it_was(frame: DirectoryFrame) -> None:
    assert BODIES[frame.TYPE].decode(frame.encode()) == frame


def test_many_entries_are_parted_by_number_and_by_size_and_the_last_part_says_so() -> None:
    many = [((1, f"{number}"), number) for number in range(ENTRIES + 1)]
    large = [((1, f"{number:0>60000}"), number) for number in range(3)]

    by_number, by_size = list(parts(many, is_last=True)), list(parts(large, is_last=True))

    assert [(len(each.entries), each.is_last) for each in by_number] == [(ENTRIES, False), (1, True)]
    assert [(len(each.entries), each.is_last) for each in by_size] == [(1, False), (1, False), (1, True)]
    assert max(len(each.encode()) for each in by_size) < ENTRIES_BYTES
    assert [entry for part in by_number for entry in Entries.decode(part.encode()).entries] == many


def test_no_entries_are_one_part() -> None:
    assert list(parts([], is_last=True)) == [Entries([], is_last=True)]


def body(**fields: object) -> bytes:
    usual = {
        "tenant": 1,
        "client": "c",
        "number": 1,
        "takes": True,
        "is_granted": True,
        "written_s": 0.0,
        "has_written": True,
        "version": 1,
        "members": [[1, 1]],
        "is_whole": True,
        "entries": [[1, "c", 1]],
        "is_last": True,
    }
    packed: bytes = msgpack.packb(usual | fields)
    return packed


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (Hold, {"tenant": -1}),
        (Hold, {"tenant": True}),
        (Hold, {"client": ""}),
        (Hold, {"client": b"c"}),
        (Hold, {"client": "c" * 65_536}),
        (Hold, {"number": 1 << 63}),
        (Hold, {"takes": 1}),
        (Held, {"is_granted": None}),
        (Held, {"written_s": 1}),
        (Held, {"written_s": -0.5}),
        (Held, {"written_s": math.nan}),
        (Release, {"has_written": 0}),
        (Take, {"number": None}),
        (Announced, {"members": []}),
        (Announced, {"members": None}),
        (Announced, {"members": [[1]]}),
        (Announced, {"members": [[1, "1"]]}),
        (Announced, {"members": [[1, 1], [1, 1]]}),
        (Announced, {"members": [[number, 1] for number in range(1_025)]}),
        (Announced, {"is_whole": 2}),
        (Entries, {"entries": None}),
        (Entries, {"entries": [[1, "c"]]}),
        (Entries, {"entries": [[1, "", 1]]}),
        (Entries, {"entries": [[1, "c", -1]]}),
        (Entries, {"entries": [[1, "c", 1]] * (ENTRIES + 1)}),
        (Entries, {"is_last": "no"}),
    ],
)
def test_a_body_outside_its_bounds_is_refused(kind: type[DirectoryFrame], fields: dict[str, object]) -> None:
    names = {"tenant", "client", "number", "takes", "is_granted", "written_s", "has_written"}
    if kind in (Announced, Entries):
        names = {"version", "members", "is_whole", "entries", "is_last"}
    assert set(fields) <= names

    with pytest.raises(BadFrameError):
        kind.decode(body(**fields))
