"""Where a webhook may lead: an http(s) URL whose host has public addresses, or some in networks that the operator allows.

Knows no connection. The addresses that were checked are those that are connected to, so a name that answers differently the second time leads
nowhere else.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import urlsplit

from iothub.base.errors import ConfigError, DeniedError
from iothub.base.units import Network

MOST_CHARACTERS = 1024
_PORTS = {"http": 80, "https": 443}


class Place(NamedTuple):
    """What a URL says. `path`: with its query."""

    is_tls: bool
    host: str
    port: int
    path: str

    @property
    def host_header(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.is_tls else 80) else f"{host}:{self.port}"


def place_of(url: str) -> Place:
    """Read a URL. Raises ConfigError."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ConfigError(f"the URL cannot be read: {error}") from None
    if len(url) > MOST_CHARACTERS or not url.isascii() or not url.isprintable() or " " in url:
        raise ConfigError(f"the URL must be up to {MOST_CHARACTERS} printable ASCII characters without spaces")
    if parts.scheme not in _PORTS or not parts.hostname:
        raise ConfigError("the URL must begin with https:// or http:// and have a host")
    if parts.username is not None or parts.password is not None or parts.fragment:
        raise ConfigError("the URL may have no user, password or fragment: requests are signed with the secret")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Place(parts.scheme == "https", parts.hostname, _PORTS[parts.scheme] if port is None else port, path)


def checked_addresses(found: Sequence[str], allowed: Sequence[Network]) -> list[str]:
    """Return the addresses of a host. Raises DeniedError: one of them is neither public nor allowed, so the name is not trusted."""
    for text in found:
        address = ipaddress.ip_address(text.partition("%")[0])
        mapped = getattr(address, "ipv4_mapped", None)
        address = mapped or address
        is_public = address.is_global and not address.is_multicast
        if not is_public and not any(address.version == network.version and address in network for network in allowed):
            raise DeniedError(f"the address {address} is not public; webhooks.allow_networks does not have it")
    return list(found)
