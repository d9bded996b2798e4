"""Settings of the REST API and of logins by an OpenID provider: what is taken, and what they need of each other (`iothub.config.admin_rules`)."""

from __future__ import annotations

import pytest

from iothub.base.errors import ConfigError
from iothub.config.loader import load

OIDC = (
    "admin.url=https://iothub.example.com",
    "admin.oidc.issuer=https://id.example.com/",
    "admin.oidc.client_id=iothub",
    "admin.oidc.roles=cn=admins,ou=x=platform-admin,acme=tenant-admin:acme",
)


def test_api_is_on_a_port_of_this_machine_unless_said_otherwise() -> None:
    admin = load().config.admin

    assert (admin.enabled, admin.bind, admin.port, admin.oidc.issuer) == ("auto", "127.0.0.1", 8081, "")
    assert load(flags=["admin.port=off"]).config.admin.port is None


def test_provider_is_taken_to_the_letter() -> None:
    """A slash at the end of an issuer is a part of it."""
    flags = [*OIDC[:3], 'admin.oidc.roles=["cn=admins,ou=x=platform-admin", "acme=tenant-admin:acme"]']

    oidc = load(flags=flags).config.admin.oidc

    assert oidc.issuer == "https://id.example.com/"
    assert oidc.roles == ("cn=admins,ou=x=platform-admin", "acme=tenant-admin:acme")


@pytest.mark.parametrize("name", ["admin.url", "admin.oidc.client_id", "admin.oidc.roles"])
def test_provider_needs_other_settings(name: str) -> None:
    given = dict(flag.split("=", 1) for flag in OIDC) | {"admin.oidc.roles": "admins=viewer"}
    del given[name]

    with pytest.raises(ConfigError, match=f"admin.oidc.issuer needs {name}"):
        load(flags=[f"{key}={value}" for key, value in given.items()])


def test_role_of_a_tenant_needs_the_tenant() -> None:
    flags = [*OIDC[:3], "admin.oidc.roles=acme=tenant-viewer"]

    with pytest.raises(ConfigError, match="names no tenant"):
        load(flags=flags)
    assert load(flags=[*flags, "admin.oidc.tenant_claim=tenant"]).config.admin.oidc.tenant_claim == "tenant"


@pytest.mark.parametrize(
    "flag",
    [
        "admin.enabled=yes",
        "admin.url=iothub.example.com",
        "admin.url=http://iothub.example.com",
        "admin.url=https://user@iothub.example.com",
        "admin.oidc.issuer=ftp://id.example.com",
        "admin.oidc.roles=admins",
        "admin.oidc.roles==viewer",
        "admin.oidc.roles=admins=scrape",
        "admin.oidc.roles=admins=viewer:acme",
        "admin.oidc.roles=admins=tenant-admin:Acme!",
    ],
)
def test_wrong_values_are_refused(flag: str) -> None:
    with pytest.raises(ConfigError, match="expected"):
        load(flags=[flag])


@pytest.mark.parametrize("url", ["http://127.0.0.1:8081", "http://localhost", "http://[::1]:1", "https://a.example/x"])
def test_addresses_that_are_taken(url: str) -> None:
    assert load(flags=[f"admin.url={url}"]).config.admin.url == url
