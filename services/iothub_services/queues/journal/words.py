"""Numbers of 8 bytes in an array: how some are added to its end, and one is read; and numbers in bytes.

Knows not what they say (`young`). The compiled counterparts are in `counted.pyx`.
"""

from __future__ import annotations

from array import array


def new_words() -> array[int]:
    """Return an array without numbers."""
    return array("Q")


def add_words(words: array[int], one: int, two: int, three: int, four: int) -> None:
    """Add four numbers to the end. Raises OverflowError: one of them does not fit; nothing is added."""
    words.extend(array("Q", (one, two, three, four)))


def word_at(words: array[int], index: int) -> int:
    """Return a number."""
    return words[index]


def long_at(data: bytes, at: int) -> int:
    """Return the number of 8 bytes that begins there, the lowest first. Raises IndexError."""
    return _number(data, at, 8)


def short_at(data: bytes, at: int) -> int:
    """Return the number of 2 bytes that begins there, the lowest first. Raises IndexError."""
    return _number(data, at, 2)


def _number(data: bytes, at: int, size: int) -> int:
    if at < 0 or at + size > len(data):
        raise IndexError("bytes end before the number")
    return int.from_bytes(data[at : at + size], "little")
