"""Causes in words: no name of a class of Python's is an answer to "what is wrong with it?"."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from iothub.records.causes import UNREADABLE, in_words
from iothub.records.json_text import require_utf8


@pytest.mark.parametrize(
    ("read", "words"),
    [
        (lambda: str(b"\xff", "utf-8"), "it is not UTF-8"),
        (lambda: json.loads("{"), "it is not JSON"),
        (lambda: {}["tenant"], "it has no 'tenant'"),
        (lambda: json.loads("[]")["v"], "something in it is of the wrong type"),
        (lambda: json.loads("[" * 1_000_000), "it is nested too deep"),
        (lambda: require_utf8(b"\\ud800", "\ud800"), "a text in it has half a character, which UTF-8 cannot have"),
        (lambda: int("x"), "a field has a value that this program cannot read"),
    ],
)
def test_cause_is_told_in_words(read: Callable[[], object], words: str) -> None:
    with pytest.raises(UNREADABLE) as caught:
        read()

    assert in_words(caught.value) == words
