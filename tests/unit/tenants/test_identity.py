"""Names: what a username must be, to the character, and what things may be called."""

from __future__ import annotations

import pytest

from iothub.base.errors import ConfigError
from iothub_tenants import identity


def test_username_of_tenant_and_device_is_split() -> None:
    """The one form there is (B68)."""
    assert identity.parse_username("acme/dev-1.A:b@c_d") == identity.Identity("acme", "dev-1.A:b@c_d")


@pytest.mark.parametrize(
    "username",
    [
        None, "", "/", "acme", "acme/", "/dev1", "acme/dev1/", "acme/dev1/x", "acme//dev1", "Acme/dev1", "a/dev1", "-acme/dev1",
        "acme/-dev1", "acme/.dev1", "acme/dev 1", " acme/dev1", "acme/dev1 ", "acme/dev1\n", "acme\n/dev1", "acme/dev1\0", "acme/+", "acme/#",
        "acme/d+v", "acme/d\u00e9v", "acme/\u0661", "\u0430cme/dev1", "acme\\dev1", "acme%2Fdev1",
        "a" * 33 + "/dev1", "acme/" + "d" * 129, "{tenant}/dev1",
    ],
)  # fmt: skip
def test_username_of_any_other_form_is_nobody(username: str | None) -> None:
    """Nothing is trimmed, folded or decoded."""
    assert identity.parse_username(username) is None


def test_longest_names_are_accepted() -> None:
    """The bounds themselves are inside."""
    username = "a" * 32 + "/" + "d" * 128

    found = identity.parse_username(username)

    assert found is not None
    assert str(found) == username


@pytest.mark.parametrize("name", sorted(identity.RESERVED))
def test_reserved_tenant_name_is_refused(name: str) -> None:
    """Words that elsewhere mean nobody or everybody."""
    with pytest.raises(ConfigError, match=r"reserved|cannot be a tenant name"):
        identity.check_tenant_name(name)


def test_own_reserved_words_replace_the_standard_ones() -> None:
    """`tenancy.reserved` is a setting."""
    identity.check_tenant_name("system", frozenset({"acme"}))
    with pytest.raises(ConfigError, match="reserved"):
        identity.check_tenant_name("acme", frozenset({"acme"}))


def test_refused_name_is_shown_on_one_printable_line() -> None:
    """A name may hold anything; the message may not."""
    with pytest.raises(ConfigError) as refusal:
        identity.check_device_name("\x1b[31m\n" + "x" * 500)

    assert str(refusal.value).isprintable()
    assert len(str(refusal.value)) < 250


def test_group_and_plan_names_are_checked() -> None:
    """They have alphabets of their own."""
    identity.check_group_name("Sensors.1")
    identity.check_plan_name("gold-2")
    for check in (identity.check_group_name, identity.check_plan_name):
        with pytest.raises(ConfigError):
            check("@all")
