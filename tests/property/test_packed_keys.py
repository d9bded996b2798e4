"""The directory's packed keys behave as a dictionary of dictionaries, by slot."""

from __future__ import annotations

from collections import defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iothub.peers import packed_keys
from iothub.peers.packed_keys import PackedKeys
from iothub.peers.view import Key, slot_of
from tests.support.night import by_day

# Names of one another's parts, of digits and colons as numbers and tenants are written, and from every length of UTF-8.
CLIENTS = st.sampled_from(["1", "11", "a", "1:1", ":", "ff", "\u00ff", "\u0100", "\ud7ff", "\U0010ffff", "a" * 700])
KEYS = st.tuples(st.sampled_from([1, 11, 1 << 40]), CLIENTS)
NUMBERS = st.integers(0, (1 << 80) - 1)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), KEYS, NUMBERS),
        st.tuples(st.just("pop"), KEYS, st.just(0)),
        st.tuples(st.just("remove"), KEYS, NUMBERS),
    ),
    max_size=60,
)


@settings(max_examples=by_day(40, 60), deadline=None)
@given(STEPS)
def test_packed_keys_are_what_a_dictionary_would_have(steps: list[tuple[str, Key, int]]) -> None:
    """Whatever is put, forgotten and removed."""
    packed, model = PackedKeys(), defaultdict[int, dict[Key, int]](dict)

    for name, key, number in steps:
        of_slot = model[slot_of(key)]
        if name == "put":
            packed.put(key, number)
            of_slot[key] = number
        elif name == "pop":
            packed.pop(key)
            of_slot.pop(key, None)
        else:
            packed.remove(slot_of(key), lambda kept, most=number: kept > most)
            model[slot_of(key)] = {each: kept for each, kept in of_slot.items() if kept <= number}

        assert packed.get(key) == model[slot_of(key)].get(key)
    assert {slot: dict(packed.of_slot(slot)) for slot in packed.slots()} == {s: k for s, k in model.items() if k}
    assert len(packed) == sum(map(len, model.values()))


def _is_even(number: int) -> bool:
    return number % 2 == 0


def _seven(_key: Key) -> int:
    return 7


def test_packed_keys_of_a_slot_with_many_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has them all, in blocks that stay small: a client can choose Client Identifiers of one slot."""
    monkeypatch.setattr(packed_keys, "slot_of", _seven)
    keys = [(1, f"client-{number}") for number in range(3_000)]
    packed, first = PackedKeys(), 1 << 51

    for number, key in enumerate(keys, first):
        packed.put(key, number)

    assert max(map(len, packed._slots[7])) <= packed_keys.BLOCK_BYTES
    assert dict(packed.of_slot(7)) == {key: number for number, key in enumerate(keys, first)}
    assert [packed.get(key) for key in keys] == list(range(first, first + len(keys)))
    packed.remove(7, _is_even)
    assert len(packed) == len(packed.of_slot(7)) == len(keys) // 2
    for key in keys:
        packed.pop(key)
    assert (len(packed), packed.has(7), list(packed.slots())) == (0, False, [])


def test_packed_keys_that_are_long_do_not_spread_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """A block of a few keys is as long as they are."""
    monkeypatch.setattr(packed_keys, "slot_of", _seven)
    packed = PackedKeys()

    for number in range(packed_keys.BLOCK_KEYS):
        packed.put((1, f"{number}" * 5_000), number)

    assert len(packed._slots[7]) == 1
