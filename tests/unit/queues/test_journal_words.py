"""The numbers of young messages, and those in bytes: both twins keep and read them alike."""

from __future__ import annotations

import random
from array import array
from collections.abc import Callable

import pytest

from iothub_services.queues.fastest import fastest
from iothub_services.queues.journal.words import add_words, long_at, new_words, short_at, word_at

COMPILED = tuple(fastest(each.__name__, each, "journal.counted") for each in (new_words, add_words, word_at))

IN_BYTES = [(fastest(each.__name__, each, "journal.counted"), each) for each in (long_at, short_at)]


def test_numbers_are_read_as_they_were_added_also_after_some_are_gone() -> None:
    """An array of any length, with the smallest and the largest number; what is taken off at the left moves the others up."""
    make, add, read = COMPILED
    chance = random.Random(3)
    words, expected = make(), array("Q")

    for _ in range(2_000):
        four = [chance.choice((0, 1, chance.getrandbits(64), (1 << 64) - 1)) for _ in range(4)]
        add(words, *four)
        add_words(expected, *four)
        if chance.random() < 0.05:
            gone = 4 * chance.randrange(len(words) // 4 + 1)
            del words[:gone]
            del expected[:gone]

    assert words == expected
    assert words.typecode == expected.typecode == "Q"
    assert [read(words, index) for index in range(len(words))] == [word_at(expected, at) for at in range(len(expected))]


def test_each_array_is_one_of_its_own() -> None:
    """Nothing of one queue comes to another."""
    make, add, _ = COMPILED
    one, two = make(), make()

    add(one, 1, 2, 3, 4)

    assert list(one) == [1, 2, 3, 4]
    assert list(two) == []


@pytest.mark.parametrize("index", [4, 400])
def test_behind_the_end_there_is_no_number(index: int) -> None:
    """No memory of others is read."""
    make, add, read = COMPILED
    words = make()
    add(words, 1, 2, 3, 4)

    with pytest.raises(IndexError):
        read(words, index)


def test_a_number_that_does_not_fit_is_refused() -> None:
    """Nothing is added then."""
    make, add, _ = COMPILED
    words = make()

    with pytest.raises(OverflowError):
        add(words, 1, 2, 3, 1 << 64)

    assert list(words) == []


@pytest.mark.parametrize(("fast", "plain"), IN_BYTES, ids=["long", "short"])
def test_both_twins_read_the_same_numbers_in_bytes(
    fast: Callable[[bytes, int], int], plain: Callable[[bytes, int], int]
) -> None:
    data = bytes([255] * 9) + random.Random(4).randbytes(60)

    numbers = [fast(data, at) for at in range(len(data) - 7)]

    assert numbers == [plain(data, at) for at in range(len(data) - 7)]
    assert numbers[0] == plain(bytes([255] * 8), 0) > 0


@pytest.mark.parametrize("at", [-1, 7, 8, 1 << 40])
@pytest.mark.parametrize("read", [each for twins in IN_BYTES for each in twins])
def test_no_number_is_read_outside_the_bytes(read: Callable[[bytes, int], int], at: int) -> None:
    """Not even one of which only the end is outside."""
    with pytest.raises(IndexError):
        read(bytes(8), at)
