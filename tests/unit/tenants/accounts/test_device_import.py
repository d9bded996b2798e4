"""Reading a document that somebody else wrote: every place that is wrong is named."""

from __future__ import annotations

import pytest

from iothub.base.errors import ConfigError
from iothub_tenants.accounts import device_import


def test_places_are_named() -> None:
    """By path, with what was expected."""
    cases = [
        (lambda: device_import.mapping([], "tenant"), "at tenant: expected an object"),
        (lambda: device_import.rows({}, "rules"), "at rules: expected a list"),
        (lambda: device_import.text({"a": 1}, "a", "rules[0]"), r"at rules\[0\].a: expected a text"),
        (lambda: device_import.flag({"a": 1}, "a", "tenant"), "at tenant.a: expected true or false"),
        (lambda: device_import.words({"a": ["x", 1]}, "a", "tenant"), "at tenant.a: expected a list of texts"),
    ]

    for read, message in cases:
        with pytest.raises(ConfigError, match=message):
            read()


def test_right_values_pass() -> None:
    """As they are."""
    assert device_import.mapping({"a": 1}, "x") == {"a": 1}
    assert device_import.rows({"a": [1]}, "a") == [1]
    assert device_import.text({"a": "x"}, "a", "x") == "x"
    assert device_import.flag({"a": False}, "a", "x") is False
    assert device_import.words({"a": ["x"]}, "a", "x") == ("x",)
