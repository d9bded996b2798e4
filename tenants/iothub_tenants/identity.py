"""Names: the strict `{tenant}/{device}` of a username, the alphabets of everything that has a name, and how an error quotes them.

Knows no store: that a name is well formed says nothing about whether it exists.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from iothub.base.errors import ConfigError
from iothub.base.ids import TENANT_NAME, TENANT_RULE

DEVICE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@-]{0,127}")
GROUP_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@-]{0,63}")
_USERNAME = re.compile(f"({TENANT_NAME.pattern})/({DEVICE_NAME.pattern})")
STREAM_NAME = re.compile(
    r"[a-z][a-z0-9-]{0,63}"
)  # a part of a topic of Kafka; no generation of our own topics begins so
PLAN_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")

# Words that other programs and our own columns use for "nobody" or "everybody" (the lesson of emqx#18123).
RESERVED = frozenset({"global", "null", "none", "undefined", "system", "_internal"})

_TEXT_LIMIT_BYTES = 65_535  # §1.5.4: the longest UTF-8 string of the protocol
_DEVICE_RULE = "1 to 128 of A-Z, a-z, 0-9 and . _ : @ -, beginning with a letter or digit"
_GROUP_RULE = "1 to 64 of A-Z, a-z, 0-9 and . _ : @ -, beginning with a letter or digit"
_STREAM_RULE = "1 to 64 of a-z, 0-9 and -, beginning with a letter"
_PLAN_RULE = "1 to 64 of a-z, 0-9 and -, beginning with a letter or digit"


class Identity(NamedTuple):
    """Who a username names: one device of one tenant."""

    tenant: str
    device: str

    def __str__(self) -> str:
        return f"{self.tenant}/{self.device}"


def parse_username(username: str | None) -> Identity | None:
    """Split a username that is exactly `{tenant}/{device}`; anything else, by one character, is None.

    Nothing is trimmed, folded or normalised: two usernames that differ name two identities.
    """
    if username is None:
        return None
    found = _USERNAME.fullmatch(username)
    return None if found is None else Identity(*found.groups())


def check_tenant_name(name: str, reserved: frozenset[str] = RESERVED) -> None:
    """Raise ConfigError unless a new tenant may have this name."""
    _check("tenant", name, TENANT_NAME, TENANT_RULE)
    if name in reserved:
        raise ConfigError(f"the tenant name {name} is reserved: choose another")


def check_device_name(name: str) -> None:
    """Raise ConfigError unless a device may have this name."""
    _check("device", name, DEVICE_NAME, _DEVICE_RULE)


def check_group_name(name: str) -> None:
    """Raise ConfigError unless a device group may have this name."""
    _check("group", name, GROUP_NAME, _GROUP_RULE)


def check_issuer_name(name: str) -> None:
    """Raise ConfigError unless a token issuer may have this name."""
    _check("token issuer", name, GROUP_NAME, _GROUP_RULE)


def check_key_name(name: str) -> None:
    """Raise ConfigError unless a key of the API may have this name."""
    _check("key", name, GROUP_NAME, _GROUP_RULE)


def check_user_name(name: str) -> None:
    """Raise ConfigError unless a user of the API may have this name."""
    _check("user", name, GROUP_NAME, _GROUP_RULE)


def check_webhook_name(name: str) -> None:
    """Raise ConfigError unless a webhook may have this name."""
    _check("webhook", name, GROUP_NAME, _GROUP_RULE)


def check_stream_name(name: str) -> None:
    """Raise ConfigError unless a stream may have this name."""
    _check("stream", name, STREAM_NAME, _STREAM_RULE)


def check_plan_name(name: str) -> None:
    """Raise ConfigError unless a plan may have this name."""
    _check("plan", name, PLAN_NAME, _PLAN_RULE)


def invalid_filter(text: str, limit_bytes: int = _TEXT_LIMIT_BYTES) -> ConfigError:
    """Return the error for a text that is no Topic Filter [MQTT-4.7.1-1] [MQTT-4.7.1-2] [MQTT-4.7.3-1]."""
    if not 1 <= len(text.encode("utf-8", "replace")) <= limit_bytes or "\0" in text:
        return ConfigError(f"topic filter {shown(text)} is not valid: expected 1 to {limit_bytes} bytes without NUL")
    return ConfigError(
        f"topic filter {shown(text)} is not valid: + must be alone in its level, # must be alone in the last level"
    )


def shown(text: str, limit: int = 64) -> str:
    """Quote foreign text for a message: one line, printable, bounded. Letters of every alphabet stay as they are."""
    cut = text if len(text) <= limit else text[:limit] + "..."
    return repr(cut)


def _check(noun: str, name: str, pattern: re.Pattern[str], rule: str) -> None:
    if not pattern.fullmatch(name):
        raise ConfigError(f"{shown(name)} cannot be a {noun} name: expected {rule}")
