"""Sets of networks in CIDR notation, and whether an address lies in one.

Knows no listeners: what a match means is decided by `iothub.net.gate`.
"""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from iothub.base.errors import ConfigError


class Networks:
    """An immutable set of networks; O(networks) per question, which is fine for the dozen that a listener has."""

    __slots__ = ("_networks",)

    def __init__(self, texts: Iterable[str]) -> None:
        self._networks: tuple[IPv4Network | IPv6Network, ...] = tuple(_network(text) for text in texts)

    def __bool__(self) -> bool:
        return bool(self._networks)

    def __contains__(self, ip: str) -> bool:
        if not self._networks:
            return False
        address = parse_ip(ip)
        return address is not None and any(address in network for network in self._networks)


def parse_ip(text: str) -> IPv4Address | IPv6Address | None:
    """Read an address; an IPv4 address that is mapped into IPv6 counts as IPv4, so that one rule covers both."""
    try:
        address = ip_address(text)
    except ValueError:
        return None
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


def plain_ip(text: str) -> str:
    """Write an address the one way that logs, rules and the engine use: no zone, no IPv4-in-IPv6."""
    text = text.partition("%")[0]
    return text[7:] if text.startswith("::ffff:") and "." in text else text


def peer_name(ip: str, port: int) -> str:
    return f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}"


def _network(text: str) -> IPv4Network | IPv6Network:
    try:
        return ip_network(text)
    except ValueError as error:
        raise ConfigError(f"{text!r} is not a network: {error}; write it like 10.0.0.0/8 or 2001:db8::/32") from None
