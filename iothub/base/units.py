"""Quantities as people write them: "10s", "1MiB", "100/10s", "10.0.0.0/8", and back.

Knows no section and no key: each function reads one value or says in a ValueError what was expected.
"""

from __future__ import annotations

import ipaddress
import math
import re
from dataclasses import dataclass
from typing import NamedTuple

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_DURATION_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_SIZE_BYTES = {"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_NUMBER_AND_UNIT = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,6})?) ?([A-Za-z]*)")  # operators' text only, never a client's
_ENDPOINT = re.compile(r"(?:\[([0-9A-Fa-f:.]{2,45})\]|([A-Za-z0-9_.-]{1,253})):([0-9]{1,5})")
_TIME_OF_DAY = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])")
OFF_WORDS = frozenset({"off", "none", "never"})


@dataclass(frozen=True, slots=True)
class Rate:
    """A number of units in a number of seconds."""

    count: int
    seconds: float

    def __str__(self) -> str:
        return f"{self.count}/{format_duration(self.seconds)}"


class Endpoint(NamedTuple):
    """Where a server listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class QueueChoice:
    """Which driver has the queues of these tenants (none: of all)."""

    driver: str
    tenants: tuple[str, ...] = ()

    def fits(self, tenant: str) -> bool:
        """Say whether it is about this tenant ("": about one that no choice names)."""
        return not self.tenants or tenant in self.tenants


def parse_duration(text: str) -> float:
    """Read "250ms", "10s", "5m", "18h" or "7d" into seconds."""
    match = _NUMBER_AND_UNIT.fullmatch(text)
    if match is None or match[2] not in _DURATION_S:
        raise ValueError('expected a duration such as "250ms", "10s", "5m", "2h" or "7d"')
    return float(match[1]) * _DURATION_S[match[2]]


def format_duration(seconds: float) -> str:
    """Write seconds in the largest unit that divides them: 90 -> "90s", 3600 -> "1h"."""
    if seconds and seconds < 1:
        return f"{_trim(seconds * 1000)}ms"
    for unit in ("d", "h", "m"):
        if seconds and math.fmod(seconds, _DURATION_S[unit]) == 0:
            return f"{_trim(seconds / _DURATION_S[unit])}{unit}"
    return f"{_trim(seconds)}s"


def parse_size(text: str) -> int:
    """Read "4096", "64KiB", "1MiB" or "2GiB" into bytes."""
    match = _NUMBER_AND_UNIT.fullmatch(text)
    if match is None or match[2] not in _SIZE_BYTES:
        raise ValueError('expected a size such as "4096", "64KiB", "1MiB" or "2GiB"')
    return int(float(match[1]) * _SIZE_BYTES[match[2]])


def format_size(size_bytes: int) -> str:
    """Write bytes in the largest unit that divides them: 1048576 -> "1MiB"."""
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        if size_bytes and size_bytes % _SIZE_BYTES[unit] == 0:
            return f"{size_bytes // _SIZE_BYTES[unit]}{unit}"
    return str(size_bytes)


def format_size_roughly(size_bytes: int) -> str:
    """Write bytes for a person, with one decimal: 1800000 -> "1.7 MiB"."""
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        if size_bytes >= _SIZE_BYTES[unit]:
            return f"{size_bytes / _SIZE_BYTES[unit]:.1f} {unit}"
    return f"{size_bytes} bytes"


def parse_rate(text: str) -> Rate | None:
    """Read "100/10s" (a number in a time) or "off"."""
    if text in OFF_WORDS:
        return None
    count, slash, window = text.partition("/")
    if not slash or not count.isascii() or not count.isdecimal() or len(count) > 12 or int(count) == 0:
        raise ValueError('expected a rate such as "100/10s", or "off"')
    seconds = parse_duration(window if window[:1].isdecimal() else f"1{window}")
    if seconds <= 0:
        raise ValueError('expected a rate with a window longer than nothing, such as "100/10s"')
    return Rate(int(count), seconds)


def parse_time_of_day(text: str) -> int | None:
    """Read "02:30" into minutes after midnight, or "off"."""
    if text in OFF_WORDS:
        return None
    match = _TIME_OF_DAY.fullmatch(text)
    if match is None:
        raise ValueError('expected a time of day such as "02:30", or "off"')
    return int(match[1]) * 60 + int(match[2])


def format_time_of_day(minutes: int | None) -> str:
    """Write minutes after midnight: 150 -> "02:30"."""
    return "off" if minutes is None else f"{minutes // 60:02d}:{minutes % 60:02d}"


def parse_network(text: str) -> Network:
    """Read an address or a network in CIDR form; host bits must be zero, so that a mistyped prefix is noticed."""
    try:
        return ipaddress.ip_network(text)
    except ValueError as error:
        raise ValueError(f'expected an address or network such as "10.0.0.0/8" or "::1": {error}') from None


def parse_endpoint(text: str) -> Endpoint:
    """Read "host:port", "10.0.0.7:9090" or "[::1]:9090"."""
    match = _ENDPOINT.fullmatch(text)
    if match is None or not 0 < int(match[3]) <= 65535:
        raise ValueError('expected host:port, such as "127.0.0.1:9090" or "[::1]:9090"')
    return Endpoint(match[1] or match[2], int(match[3]))


def _trim(value: float) -> str:
    return f"{value:.6f}".rstrip("0").rstrip(".")
