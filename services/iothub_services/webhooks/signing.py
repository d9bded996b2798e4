"""Secrets and signatures of webhooks, by the Standard Webhooks specification: HMAC-SHA256 over id, time and body.

Knows no store. A secret is not stored: it is made of the server's pepper and a random salt, so a copy of the accounts does not have it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Sequence

MARK = "whsec_"
_PURPOSE = b"iothub webhook secret\0"


def new_salt() -> str:
    return secrets.token_hex(16)


def secret_of(pepper: bytes, salt: str) -> bytes:
    """Return the secret that belongs to a salt."""
    return hmac.digest(pepper, _PURPOSE + salt.encode(), hashlib.sha256)


def shown(secret: bytes) -> str:
    """Return the text that a person copies into the receiver."""
    return MARK + base64.b64encode(secret).decode()


def headers(signing: Sequence[bytes], event_id: str, at_s: int, body: bytes) -> dict[str, str]:
    """Return `webhook-id`, `webhook-timestamp` and `webhook-signature`, with a signature for each secret."""
    content = f"{event_id}.{at_s}.".encode() + body
    signatures = (base64.b64encode(hmac.digest(secret, content, hashlib.sha256)).decode() for secret in signing)
    return {
        "webhook-id": event_id,
        "webhook-timestamp": str(at_s),
        "webhook-signature": " ".join(f"v1,{signature}" for signature in signatures),
    }
