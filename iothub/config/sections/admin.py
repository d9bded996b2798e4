"""The REST API and the dashboard: the process that a hub starts beside itself."""

from __future__ import annotations

from dataclasses import dataclass

from iothub.config import value_types
from iothub.config.sections.key import key


@dataclass(frozen=True, slots=True)
class Admin:
    """The REST API (extra `admin`), as a process beside the hub."""

    enabled: str = key(
        value_types.choice("auto", "on", "off"),
        "auto",
        "auto: `iothub serve` starts it if the extra `admin` is installed; on: the extra must be there; off: only `iothub admin serve` does.",
    )
    bind: str = key(
        value_types.address,
        "127.0.0.1",
        "Address to listen on. It speaks HTTP without TLS: put a proxy with TLS in front of another one.",
    )
    port: int | None = key(value_types.port, 8081, '0 takes any free port; "off" is the same as `enabled = "off"`.')
    url: str = key(
        value_types.web_address,
        "",
        "Where browsers reach it, such as https://iothub.example.com, if a proxy is between.",
    )
    trusted_proxies: tuple[str, ...] = key(
        value_types.words,
        ("127.0.0.1", "::1"),
        "Addresses and networks of proxies whose X-Forwarded-For and X-Forwarded-Proto count.",
    )
