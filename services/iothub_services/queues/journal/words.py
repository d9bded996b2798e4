"""Numbers of 8 bytes in an array: how some are added to its end, and one is read.

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
