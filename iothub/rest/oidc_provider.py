"""An OpenID provider: where its endpoints are, what a code is worth, and whether an ID token is its own and for this API.

Knows no user and no role. Blocks; may be called from several threads. What the provider publishes is kept for an hour; keys are read again when
a token names one that is not known, at most once in a while.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Mapping
from threading import Lock
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import jwt

from iothub.base.errors import DeniedError, UnavailableError
from iothub.config.sections import Oidc
from iothub.rest.fetching import fetch_json

Fetch = Callable[..., Any]
"""As `fetch_json`."""

ALGORITHMS = (
    "RS256",
    "PS256",
    "ES256",
    "EdDSA",
)  # signatures by the provider's own key; never a shared secret, never none
KEEP_S = 3600.0
KEYS_AGAIN_S = 30.0
_LEEWAY_S = 60
_REQUIRED = ["iss", "sub", "aud", "exp", "iat"]
_ENDPOINTS = ("authorization_endpoint", "token_endpoint", "jwks_uri")


class Provider:
    """`secret`: what the provider has given for this API; "": nothing, it is a public client."""

    def __init__(
        self, settings: Oidc, secret: str, fetch: Fetch = fetch_json, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._settings = settings
        self._secret = secret
        self._fetch = fetch
        self._monotonic = monotonic
        self._lock = Lock()
        self._document: dict[str, Any] = {}
        self._document_s = 0.0
        self._keys: dict[str | None, jwt.PyJWK] = {}
        self._keys_s = 0.0

    def authorization_url(self, redirect_uri: str, state: str, nonce: str, challenge: str) -> str:
        """Return where a browser goes to log in. Raises UnavailableError."""
        scopes = dict.fromkeys(("openid", *self._settings.scopes))
        query = {
            "response_type": "code",
            "client_id": self._settings.client_id,
            "redirect_uri": redirect_uri,
            "scope": " ".join(scopes),
            "state": state,
            "nonce": nonce,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        endpoint = self._published()["authorization_endpoint"]
        return f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(query)}"

    def claims_of(self, code: str, redirect_uri: str, verifier: str, nonce: str) -> dict[str, Any]:
        """Return the claims of the ID token that a code is worth. Raises DeniedError: it is worth none, or a wrong one; UnavailableError."""
        document = self._published()
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect_uri,
            "client_id": self._settings.client_id,
            "code_verifier": verifier,
        }
        answer = self._fetch(document["token_endpoint"], form, self._authentication(document, form))
        token = answer.get("id_token")
        if not isinstance(token, str):
            raise DeniedError("the OpenID provider gave no ID token")
        return self._verified(token, nonce)

    def _authentication(self, document: Mapping[str, Any], form: dict[str, str]) -> dict[str, str]:
        """Return the headers that say who asks, or put it into the form, as the provider wants it."""
        if not self._secret:
            return {}
        methods = document.get("token_endpoint_auth_methods_supported") or ["client_secret_basic"]
        if "client_secret_basic" not in methods:
            form["client_secret"] = self._secret
            return {}
        pair = f"{quote(self._settings.client_id, safe='')}:{quote(self._secret, safe='')}"
        return {"Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}

    def _verified(self, token: str, nonce: str) -> dict[str, Any]:
        try:
            key = self._key(jwt.get_unverified_header(token).get("kid"))
            claims: dict[str, Any] = jwt.decode(
                token,
                key,
                algorithms=list(ALGORITHMS),
                audience=self._settings.client_id,
                issuer=self._settings.issuer,
                leeway=_LEEWAY_S,
                options={"require": _REQUIRED},
            )
        except jwt.PyJWTError as error:
            raise DeniedError(f"the ID token is not valid: {error}") from None
        if claims.get("nonce") != nonce:
            raise DeniedError("the ID token is not valid: it is of another login")
        parties = claims["aud"] if isinstance(claims["aud"], list) else [claims["aud"]]
        if claims.get("azp", self._settings.client_id) != self._settings.client_id or (
            len(parties) > 1 and "azp" not in claims
        ):
            raise DeniedError("the ID token is not valid: it was given to somebody else")
        if not isinstance(claims["sub"], str) or not claims["sub"]:
            raise DeniedError("the ID token is not valid: it is about nobody")
        return claims

    # --- what the provider publishes

    def _published(self) -> dict[str, Any]:
        with self._lock:
            if not self._document or self._monotonic() - self._document_s >= KEEP_S:
                self._document = self._discovered()
                self._document_s = self._monotonic()
            return self._document

    def _discovered(self) -> dict[str, Any]:
        issuer = self._settings.issuer
        found: dict[str, Any] = self._fetch(f"{issuer.rstrip('/')}/.well-known/openid-configuration")
        if found.get("issuer") != issuer:
            raise UnavailableError(
                f"the OpenID provider calls itself {str(found.get('issuer'))[:200]!r}: admin.oidc.issuer must be that, to the letter"
            )
        for name in _ENDPOINTS:
            url = urlsplit(str(found.get(name, "")))
            if url.scheme != "https" and url.scheme != urlsplit(issuer).scheme:
                raise UnavailableError(f"the OpenID provider publishes no {name} with https")
        return found

    def _key(self, kid: str | None) -> jwt.PyJWK:
        """Return the key of this name, or the only one for a token that names none. Raises DeniedError, UnavailableError."""
        uri = self._published()["jwks_uri"]
        with self._lock:
            age_s = self._monotonic() - self._keys_s
            if (
                not self._keys
                or age_s >= KEEP_S
                or (kid not in self._keys and kid is not None and age_s >= KEYS_AGAIN_S)
            ):
                self._keys = _keys_of(self._fetch(uri))
                self._keys_s = self._monotonic()
            if kid is None and len(self._keys) == 1:
                return next(iter(self._keys.values()))
            if kid not in self._keys:
                raise DeniedError("the ID token is not valid: the OpenID provider does not have the key that signed it")
            return self._keys[kid]


def _keys_of(document: Mapping[str, Any]) -> dict[str | None, jwt.PyJWK]:
    """Return the keys for signatures that can be used. Raises UnavailableError: there is none."""
    found: dict[str | None, jwt.PyJWK] = {}
    rows = document.get("keys")
    for row in rows if isinstance(rows, list) else []:
        if not isinstance(row, dict) or row.get("use", "sig") != "sig":
            continue
        try:
            key = jwt.PyJWK.from_dict(row)
        except (jwt.PyJWTError, ValueError, TypeError):
            continue  # of a kind that is not known here
        if key.algorithm_name in ALGORITHMS:
            found[key.key_id] = key
    if not found:
        raise UnavailableError("the OpenID provider publishes no key that can be used")
    return found
