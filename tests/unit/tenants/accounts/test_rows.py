"""Rows of a document that somebody else wrote: every place that is wrong is named; and what of a row goes along."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from iothub.base.errors import ConfigError
from iothub_tenants.accounts import rows
from iothub_tenants.accounts.device_import import BANS, DEVICES

BAN = {"kind": "device", "value": "dev1", "until_ms": 0, "reason": "", "created_ms": 5}


@pytest.mark.parametrize(
    ("read", "message"),
    [
        (lambda: rows.mapping([], "tenant"), "at tenant: expected an object"),
        (lambda: rows.value({}, "rules", list), "at rules: expected a list"),
        (lambda: rows.value({"a": 1}, "a", str, "rules[0]"), r"at rules\[0\].a: expected a text"),
        (lambda: rows.value({"a": True}, "a", int, "x"), "at x.a: expected a number"),
        (lambda: rows.value({"a": 1}, "a", bool, "tenant"), "at tenant.a: expected true or false"),
        (lambda: rows.words({"a": ["x", 1]}, "a", "tenant"), "at tenant.a: expected a list of texts"),
        (lambda: rows.words({}, "groups", ""), "at groups: expected a list of texts"),
        (lambda: list(BANS.found_in({"bans": 5})), "at bans: expected a list"),
        (lambda: list(BANS.found_in({"bans": [BAN, 5]})), r"at bans\[1\]: expected an object"),
        (lambda: BANS.checked(BAN | {"until_ms": "x"}, "bans[7]"), r"at bans\[7\].until_ms: expected a number"),
        (lambda: BANS.checked({}, "bans[7]"), r"at bans\[7\].kind: expected a text"),
        (
            lambda: DEVICES.checked({"name": "", "credential_kind": "", "credential": "", "is_enabled": 1}, "d"),
            "d.is_en",
        ),
    ],
)
def test_places_are_named(read: Callable[[], object], message: str) -> None:
    """By path, with what was expected."""
    with pytest.raises(ConfigError, match=message):
        read()


def test_right_values_pass() -> None:
    """As they are; what is not a column that goes along is nobody's."""
    assert rows.value({"a": False}, "a", bool) is False
    assert rows.words({"a": ["x"]}, "a", "x") == ("x",)
    assert list(BANS.found_in({"bans": [BAN]})) == [("bans[0]", BAN)]
    assert BANS.pick(BAN) == {"kind": "device", "value": "dev1", "until_ms": 0, "reason": ""}
