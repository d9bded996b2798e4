"""Token issuers from what people have: a key as PEM, a key set or a shared secret, and what tokens must say.

Command and API make and change them with these functions. Knows neither option nor path: the caller says what to use when there is no key.
"""

from __future__ import annotations

from dataclasses import dataclass

from iothub.base.errors import ConfigError
from iothub_services.auth.port import TokenAlgorithm, TokenIssuer, TokenKey
from iothub_tenants.accounts import token_issuers
from iothub_tenants.accounts.store import AccountStore
from iothub_tenants.accounts.token_issuers import Issuer


@dataclass(frozen=True, slots=True)
class Given:
    """What is given of an issuer, None: nothing. At most one of `public_key` (PEM), `jwks` and `secret`; `algorithm` needs one of them.

    When an issuer is changed, an empty `issuer` or `audience` lifts the check.
    """

    public_key: str | None = None
    jwks: object = None
    secret: str | None = None
    algorithm: str | None = None
    issuer: str | None = None
    audience: str | None = None
    leeway_s: float | None = None

    @property
    def has_keys(self) -> bool:
        return (self.public_key, self.jwks, self.secret) != (None, None, None)

    @property
    def has_any(self) -> bool:
        return self != Given()


def add(store: AccountStore, tenant: str, name: str, given: Given) -> Issuer:
    """Trust an issuer. Raises NotFoundError, ConflictError, TenantLimitError; ConfigError: there is no key, or it is no good one."""
    found = _keys(given, store.pepper)
    if found is None:
        raise ConfigError("no key given: expected `public_key`, `jwks` or `secret`")
    wanted = TokenIssuer(name, *found, given.issuer or "", given.audience or "", given.leeway_s or 0.0)
    return token_issuers.add(store, tenant, wanted)


def change(store: AccountStore, tenant: str, name: str, given: Given) -> Issuer:
    """Change what is given; new keys replace all old ones. Raises NotFoundError, ConflictError, TenantLimitError, ConfigError."""
    algorithm, keys = _keys(given, store.pepper) or (None, None)
    changes = token_issuers.Changes(keys, given.issuer, given.audience, given.leeway_s)
    return token_issuers.change(store, tenant, name, changes, algorithm)


def _keys(given: Given, pepper: bytes) -> tuple[TokenAlgorithm, tuple[TokenKey, ...]] | None:
    """Return the keys that are given; None: there are none. Raises ConfigError."""
    from iothub_services.auth import token_keys  # the cryptography that other verbs and paths do without

    if sum(each is not None for each in (given.public_key, given.jwks, given.secret)) > 1:
        raise ConfigError("expected one of `public_key`, `jwks` and `secret`, got several")
    algorithm = None if given.algorithm is None else TokenAlgorithm(given.algorithm)
    if given.secret is not None:
        if algorithm not in (None, TokenAlgorithm.HS256):
            raise ConfigError(f"`secret` is for HS256, not for {algorithm}: expected `public_key` or `jwks`")
        return TokenAlgorithm.HS256, (token_keys.read_shared_secret(given.secret, pepper),)
    if given.public_key is not None:
        found, key = token_keys.read_public_key(given.public_key, algorithm)
        return found, (key,)
    if given.jwks is not None:
        return token_keys.read_jwks(given.jwks, algorithm)
    if algorithm is not None:
        raise ConfigError("`algorithm` needs a key: `public_key` or `jwks`")
    return None
