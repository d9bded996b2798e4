"""A small OpenID provider: real keys, real tokens, no socket. A test says what it publishes and what its tokens say.

Knows the protocol from the provider's side, and no hub.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs, urlsplit

from iothub.base.errors import DeniedError, UnavailableError
from tests.support.tokens import RS256, jwk, token

ISSUER = "https://id.example.com/realms/main"
CLIENT = "iothub"
SECRET = "s3cret:with/marks"


class OidcProvider:
    """`claims`: of the next token, over the usual ones; None leaves one out. `asked`: what was fetched."""

    def __init__(self) -> None:
        self.claims: dict[str, Any] = {}
        self.keys: list[dict[str, object]] = [jwk(RS256, "k1")]
        self.document: dict[str, Any] = {
            "issuer": ISSUER,
            "authorization_endpoint": f"{ISSUER}/auth",
            "token_endpoint": f"{ISSUER}/token",
            "jwks_uri": f"{ISSUER}/keys",
        }
        self.signing: dict[str, Any] = {"algorithm": RS256, "kid": "k1"}
        self.token: str | None = None  # in place of a made one
        self.is_down = False
        self.asked: list[str] = []
        self._codes: dict[str, dict[str, str]] = {}

    def log_in(self, location: str) -> dict[str, str]:
        """A person logs in at the provider's page: what the browser comes back with."""
        query = {name: values[0] for name, values in parse_qs(urlsplit(location).query).items()}
        assert location.startswith(f"{ISSUER}/auth?")
        assert query["response_type"] == "code"
        assert query["client_id"] == CLIENT
        assert "openid" in query["scope"].split()
        assert query["code_challenge_method"] == "S256"
        code = secrets.token_urlsafe(8)
        self._codes[code] = query
        return {"state": query["state"], "code": code}

    def fetch(self, url: str, form: Mapping[str, str] | None = None, headers: Mapping[str, str] | None = None) -> Any:
        self.asked.append(url)
        if self.is_down:
            raise UnavailableError("id.example.com does not answer as it should: timed out")
        if url == f"{ISSUER}/.well-known/openid-configuration":
            return self.document
        if url == f"{ISSUER}/keys":
            return {"keys": self.keys}
        assert url == f"{ISSUER}/token"
        return self._exchange(dict(form or {}), dict(headers or {}))

    def _exchange(self, form: dict[str, str], headers: dict[str, str]) -> dict[str, Any]:
        pair = base64.b64encode(f"{CLIENT}:s3cret%3Awith%2Fmarks".encode()).decode()
        is_known = headers.get("Authorization") == f"Basic {pair}" or form.get("client_secret") == SECRET
        query = self._codes.pop(form["code"], None)
        if query is None or not is_known:
            raise DeniedError("id.example.com refuses: invalid_grant")
        digest = hashlib.sha256(form["code_verifier"].encode()).digest()
        assert base64.urlsafe_b64encode(digest).decode().rstrip("=") == query["code_challenge"]
        assert form["redirect_uri"] == query["redirect_uri"]
        return {"id_token": self.token or self._made(query["nonce"]), "token_type": "Bearer"}

    def _made(self, nonce: str) -> str:
        now = int(time.time())
        usual = {"iss": ISSUER, "sub": "1", "aud": CLIENT, "iat": now, "exp": now + 300, "nonce": nonce}
        return token(**self.signing, **{**usual, "preferred_username": "alice", **self.claims}).decode()
