"""Limits by name, for scripts, and without their name, for tables."""

from __future__ import annotations

import pytest

from iothub.admin.limits import values_of, words_for
from iothub.cli.limits import words_of
from iothub_services.quota.grammar import format_limits, parse_limits, standard_limits


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("", {}),
        ("connections=100", {"connections": 100}),
        ("queued_bytes=1GiB session_expiry_s=7d", {"queued_bytes": 1 << 30, "session_expiry_s": 604_800}),
        ("publish_bytes=1MiB/1s,9/1d", {"publish_bytes": ["1048576/1s", "9/1d"]}),
        ("connects=unlimited", {"connects": "unlimited"}),
        ("connections=5 dry-run:connections=3", {"connections": 5, "dry-run:connections": 3}),
    ],
)
def test_limits_are_an_object(text: str, values: object) -> None:
    assert values_of(text) == values


def test_object_can_be_given_back() -> None:
    """`name=value`, lists joined by commas, is the grammar of `quota set`."""
    text = format_limits(standard_limits())

    again = words_for(values_of(text))

    assert parse_limits(again) == parse_limits(text)


def test_what_the_grammar_refuses_is_shown_as_it_is() -> None:
    """Somebody must see it to mend it."""
    assert values_of("topic_levels=9999999 connections=1") == {"topic_levels": "9999999", "connections": 1}


def test_words_leave_the_name_out() -> None:
    assert words_of("connects=50/1s,9/1d dry-run:connects=3/1s") == "50/1s,9/1d, dry-run 3/1s"
