"""Reading a document that somebody else wrote: every place that is wrong is named."""

from __future__ import annotations

import pytest

from iothub.errors import ConfigError
from iothub_tenants.accounts import arrivals


def test_places_are_named() -> None:
    """By path, with what was expected."""
    cases = [
        (lambda: arrivals.mapping([], "tenant"), "at tenant: expected an object"),
        (lambda: arrivals.rows({}, "rules"), "at rules: expected a list"),
        (lambda: arrivals.text({"a": 1}, "a", "rules[0]"), r"at rules\[0\].a: expected a text"),
        (lambda: arrivals.flag({"a": 1}, "a", "tenant"), "at tenant.a: expected true or false"),
        (lambda: arrivals.words({"a": ["x", 1]}, "a", "tenant"), "at tenant.a: expected a list of texts"),
    ]

    for read, message in cases:
        with pytest.raises(ConfigError, match=message):
            read()


def test_right_values_pass() -> None:
    """As they are."""
    assert arrivals.mapping({"a": 1}, "x") == {"a": 1}
    assert arrivals.rows({"a": [1]}, "a") == [1]
    assert arrivals.text({"a": "x"}, "a", "x") == "x"
    assert arrivals.flag({"a": False}, "a", "x") is False
    assert arrivals.words({"a": ["x"]}, "a", "x") == ("x",)
