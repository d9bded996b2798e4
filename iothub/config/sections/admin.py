"""The REST API and the dashboard: the process that a hub starts beside itself, and how people log in."""
# ruff: noqa: RUF009 - `key` is evaluated once per class, as `field` is; its defaults are immutable

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from iothub.config import value_types
from iothub.config.sections.key import key


@dataclass(frozen=True, slots=True)
class Oidc:
    """Login of people by an OpenID provider (guide: REST API). Users with a password can log in as well."""

    issuer: str = key(
        value_types.web_address,
        "",
        "The provider's issuer, such as https://id.example.com/realms/main: its /.well-known/openid-configuration is read. Empty: off.",
    )
    client_id: str = key(value_types.text, "", "The id under which the provider knows this API.")
    client_secret_file: Path | None = key(
        value_types.path, None, "File with the secret that the provider gave for it; none for a public client."
    )
    scopes: tuple[str, ...] = key(
        value_types.words, ("openid", "profile", "email"), "What is asked of the provider; `openid` is always asked."
    )
    name_claim: str = key(value_types.text, "preferred_username", "Claim of the ID token with the user's name.")
    role_claim: str = key(
        value_types.text, "groups", "Claim with the user's groups: a text or a list; a.b is the claim b within a."
    )
    roles: tuple[str, ...] = key(
        value_types.group_roles,
        (),
        'Roles of groups: "GROUP=ROLE", or "GROUP=ROLE:TENANT" for the roles of a tenant. The first one that the user has counts; who has none '
        "is refused.",
    )
    tenant_claim: str = key(
        value_types.text, "", "Claim with the tenant, for roles of a tenant that `roles` does not name a tenant for."
    )


@dataclass(frozen=True, slots=True)
class Admin:
    """The REST API (extra `admin`), as a process beside the hub."""

    enabled: str = key(
        value_types.choice("auto", "on", "off"),
        "auto",
        "auto: `iothub serve` starts it if the extra `admin` is installed; on: the extra must be there; off: only `iothub admin serve` does.",
    )
    bind: str = key(
        value_types.address,
        "127.0.0.1",
        "Address to listen on. It speaks HTTP without TLS: put a proxy with TLS in front of another one.",
    )
    port: int | None = key(value_types.port, 8081, '0 takes any free port; "off" is the same as `enabled = "off"`.')
    url: str = key(
        value_types.web_address,
        "",
        "Where browsers reach it, such as https://iothub.example.com, if a proxy is between. Needed for OpenID.",
    )
    trusted_proxies: tuple[str, ...] = key(
        value_types.words,
        ("127.0.0.1", "::1"),
        "Addresses and networks of proxies whose X-Forwarded-For and X-Forwarded-Proto count.",
    )
    oidc: Oidc = field(default_factory=Oidc)
