"""Foreign text made harmless."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from iothub.base.text import clean, printable


@given(st.text())
def test_any_text_becomes_one_printable_line(text: str) -> None:
    assert printable(text).isprintable()
    assert clean(text).isprintable()


def test_printable_text_is_left_alone() -> None:
    assert printable("Größe 10 µm, ключ") == "Größe 10 µm, ключ"


def test_long_text_is_cut() -> None:
    assert clean("a" * 600) == "a" * 512 + "... (600 characters)"
