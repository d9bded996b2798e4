"""Where a webhook may lead: an http(s) URL whose host has public addresses, or some in networks that the operator allows.

Knows no connection. The addresses that were checked are those that are connected to, so a name that answers differently the second time leads
nowhere else.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias
from urllib.parse import urlsplit

from iothub.base.errors import ConfigError, DeniedError
from iothub.base.units import Network

_Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

MOST_CHARACTERS = 1024
_PORTS = {"http": 80, "https": 443}
_PUBLIC_V6 = ipaddress.IPv6Network("2000::/3")  # what is assigned as global unicast; addresses of NAT64 are outside
# Inside the public ranges, and yet not one machine's own address: some lead to an IPv4 address that they contain.
_SPECIAL = tuple(
    ipaddress.ip_network(text)
    for text in (
        "192.0.0.0/24",  # protocol assignments, some clouds' metadata among them
        "192.88.99.0/24",  # relays of 6to4
        "198.18.0.0/15",
        "168.63.129.16/32",  # Azure's host, reached from each of its machines
        "2001::/23",  # protocol assignments, Teredo
        "2002::/16",  # 6to4
        "3fff::/20",  # documentation
    )
)


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
        if not _is_allowed(address, allowed):
            raise DeniedError(_refusal(address))
    return list(found)


def refuse_literal(place: Place, allowed: Sequence[Network]) -> None:
    """Raise ConfigError if the host is an address, and not one to which requests are sent. Where a name leads is known at the attempt."""
    address = _literal(place.host)
    if address is not None and not _is_allowed(address, allowed):
        raise ConfigError(f"the URL cannot be used: {_refusal(address)}")


def _literal(host: str) -> _Address | None:
    """Return the address that a host is, in whatever notation it would be connected to: `127.1` is one, too."""
    try:
        return ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        pass
    try:
        return ipaddress.IPv4Address(socket.inet_aton(host))
    except OSError:
        return None


def _refusal(address: _Address) -> str:
    return (
        f"the address {address} is not public; expected a public one, "
        "or one in a network that the operator has put into the setting webhooks.allow_networks"
    )


def _is_allowed(address: _Address, allowed: Sequence[Network]) -> bool:
    address = getattr(address, "ipv4_mapped", None) or address
    return _is_public(address) or any(_contains(network, address) for network in allowed)


def _is_public(address: _Address) -> bool:
    if not address.is_global or address.is_multicast or any(_contains(network, address) for network in _SPECIAL):
        return False
    return address.version == 4 or address in _PUBLIC_V6


def _contains(network: Network, address: _Address) -> bool:
    return network.version == address.version and address in network
