"""Logging in by an OpenID provider: the way there and back, and which role its groups have here.

Knows no HTTP. Authorization Code Flow with PKCE. What must be the same when the browser comes back is in a cookie that only this API can make.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from iothub.base.errors import DeniedError
from iothub.config.sections import Admin
from iothub.rest.oidc_provider import Provider
from iothub_services.auth.secrets import mac
from iothub_tenants.accounts import login_sessions, users
from iothub_tenants.accounts.login_sessions import Begun
from iothub_tenants.accounts.store import AccountStore
from iothub_tenants.accounts.users import Person

COOKIE = "iothub-oidc"
FLOW_S = 600  # from the button to the way back
WHOLE_S = 12 * 3600  # of a login: what the provider says of a person is asked again then
_PURPOSE = b"oidc flow\0"


@dataclass(frozen=True, slots=True)
class Departure:
    """A browser that goes to the provider: where to, and the cookie that it brings back."""

    url: str
    cookie: str


class OidcLogin:
    """Blocks. `wall`: Unix seconds."""

    def __init__(self, settings: Admin, store: AccountStore, provider: Provider, wall: Callable[[], float]) -> None:
        self._settings = settings.oidc
        self._redirect_uri = f"{settings.url.rstrip('/')}/api/v1/auth/oidc/callback"
        self._store = store
        self._provider = provider
        self._wall = wall

    def begin(self) -> Departure:
        """Raises UnavailableError: the provider does not answer."""
        state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
        challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).decode().rstrip("=")
        url = self._provider.authorization_url(self._redirect_uri, state, nonce, challenge)
        content = json.dumps([state, nonce, verifier, int(self._wall())]).encode()
        return Departure(url, f"{_encoded(content)}.{_encoded(self._signature(content))}")

    def finish(self, cookie: str | None, state: str, code: str, address: str) -> Begun:
        """Log in whom the provider has sent back.

        Raises:
            DeniedError: this browser has not begun it, or too long ago; the provider does not vouch for anybody; nobody with such groups may log in.
            ConfigError, ConflictError, NotFoundError: what the provider says does not go with the accounts.
            UnavailableError: the provider does not answer.
        """
        expected, nonce, verifier = self._departed(cookie)
        if not hmac.compare_digest(expected.encode(), state.encode()):
            raise DeniedError("this login was begun elsewhere: log in again")
        claims = self._provider.claims_of(code, self._redirect_uri, verifier, nonce)
        user = users.take_person(self._store.acting_as("oidc"), self._person(claims))
        store = self._store.acting_as(f"user:{user.name}")
        begun = login_sessions.begin(store, user, "", WHOLE_S, by="oidc", address=address)
        if begun is None:
            raise DeniedError(f"the user {user.name} is disabled")
        return begun

    def _person(self, claims: Mapping[str, Any]) -> Person:
        """Raises DeniedError: none of the groups has a role."""
        name = _claim(claims, self._settings.name_claim) or claims.get("email") or claims["sub"]
        role, tenant = self._role(claims)
        return Person(self._settings.issuer, claims["sub"], str(name), role, tenant)

    def _role(self, claims: Mapping[str, Any]) -> tuple[str, str | None]:
        given = _claim(claims, self._settings.role_claim)
        groups = [each for each in (given if isinstance(given, list) else [given]) if isinstance(each, str)]
        for line in self._settings.roles:
            group, _, meaning = line.rpartition("=")
            if group in groups:
                role, _, tenant = meaning.partition(":")
                return role, tenant or (self._tenant(claims) if role.startswith("tenant-") else None)
        raise DeniedError(
            "none of your groups has a role here: ask whoever runs this hub (the setting admin.oidc.roles)"
        )

    def _tenant(self, claims: Mapping[str, Any]) -> str:
        tenant = _claim(claims, self._settings.tenant_claim)
        if not isinstance(tenant, str) or not tenant:
            raise DeniedError(f"the OpenID provider names no tenant for you (the claim {self._settings.tenant_claim})")
        return tenant

    def _departed(self, cookie: str | None) -> tuple[str, str, str]:
        """Return state, nonce and verifier of the login that this browser has begun. Raises DeniedError."""
        body, _, signature = (cookie or "").partition(".")
        try:
            content, given = _decoded(body), _decoded(signature)
        except (binascii.Error, ValueError):
            content, given = b"", b""
        if not hmac.compare_digest(self._signature(content), given):
            raise DeniedError("this login was not begun in this browser: log in again")
        state, nonce, verifier, begun_s = json.loads(content)
        if self._wall() - begun_s > FLOW_S:
            raise DeniedError(f"this login took longer than {FLOW_S // 60} minutes: log in again")
        return state, nonce, verifier

    def _signature(self, content: bytes) -> bytes:
        return mac(_PURPOSE + content, self._store.pepper)


def _claim(claims: Mapping[str, Any], name: str) -> Any:
    """Return a claim; `a.b` is b within a, unless there is one that is called so."""
    if name in claims:
        return claims[name]
    found: Any = claims
    for part in name.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found


def _encoded(octets: bytes) -> str:
    return base64.urlsafe_b64encode(octets).decode().rstrip("=")


def _decoded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))
