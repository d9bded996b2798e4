"""Bans that people set, by device, Client Identifier and address, and the networks of a tenant.

Knows no counted failures (`failures`) and no reply. A ban that cannot be read bans: a damaged row never lets anybody in.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import TypeAlias

from iothub_services.auth.port import Ban, BanKind

_Address: TypeAlias = IPv4Address | IPv6Address
_Network: TypeAlias = IPv4Network | IPv6Network


def find_ban(bans: Collection[Ban], *, device: str, client_id: str, address: str, now: float) -> Ban | None:
    """Return the first ban in force that names the device, the Client Identifier or the address. `now`: Unix seconds."""
    peer = _parse_address(address) if bans else None
    for ban in bans:
        if ban.until and ban.until <= now:
            continue
        if ban.kind is BanKind.DEVICE:
            is_named = ban.subject == device
        elif ban.kind is BanKind.CLIENT_ID:
            is_named = ban.subject == client_id
        else:
            is_named = _names_address(ban.subject, peer)
        if is_named:
            return ban
    return None


def is_address_permitted(address: str, *, allowed: Collection[str], denied: Collection[str]) -> bool:
    """Say whether a tenant lets this address in: named by no `denied` network and, if there are any, by an `allowed` one."""
    if not allowed and not denied:
        return True
    peer = _parse_address(address)
    if any(_names_address(text, peer) for text in denied):
        return False
    networks = [_parse_network(text) for text in allowed]
    return not networks or any(network is not None and _contains(network, peer) for network in networks)


def _names_address(text: str, peer: _Address | None) -> bool:
    network = _parse_network(text)
    return network is None or peer is None or _contains(network, peer)


def _contains(network: _Network, peer: _Address | None) -> bool:
    return peer is not None and peer.version == network.version and peer in network


@lru_cache(maxsize=4096)
def _parse_address(text: str) -> _Address | None:
    try:
        address = ip_address(text)
    except ValueError:
        return None
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped  # ::ffff:192.0.2.1 is that IPv4 host, on a socket that takes both
    return address


@lru_cache(maxsize=4096)
def _parse_network(text: str) -> _Network | None:
    try:
        return ip_network(text)
    except ValueError:
        return None
