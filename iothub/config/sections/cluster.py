"""The links to the other hubs that share this hub's stores."""
# ruff: noqa: RUF009 - `key` is evaluated once per class, as `field` is; its defaults are immutable

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from iothub.config import value_types
from iothub.config.sections.key import key


@dataclass(frozen=True, slots=True)
class Cluster:
    """Links between hubs that share accounts, session log and stores (guide: Cluster)."""

    listen: str = key(
        value_types.link_listen,
        "",
        'Where other hubs connect: "ADDRESS:PORT" (TCP with TLS, both sides show a certificate), or "unix:PATH" for hubs of one machine and user. '
        "Empty: this hub has no links.",
    )
    advertise: str = key(
        value_types.link_advertise,
        "",
        "The host:port at which other hubs reach `listen`. Default: `listen`, with the machine's host name in place of a wildcard address.",
    )
    ca_file: Path | None = key(
        value_types.path,
        None,
        "Authority of all hubs' certificates, as `iothub cluster issue` writes it. Default: `cluster/ca.pem` in the data directory.",
    )
    certificate_file: Path | None = key(
        value_types.path,
        None,
        "Certificate of this node number. Default: `cluster/cert.pem` in the data directory.",
    )
    key_file: Path | None = key(
        value_types.path, None, "Its private key. Default: `cluster/key.pem` in the data directory."
    )
    insecure: bool = key(
        value_types.flag,
        False,
        "true: links over TCP without TLS, for tries on one machine; `listen` must be a loopback address.",
    )
    frame_bytes: int = key(
        value_types.size(1 << 20, 1 << 30),
        16 << 20,
        "Largest frame on a link; a hub that sends a larger one is disconnected. The same on every hub.",
    )
    link_bytes: int = key(
        value_types.size(1 << 20, 1 << 36),
        64 << 20,
        "Limit for what waits for one hub, sent and not acknowledged included; it does not count for `overload.buffered_bytes`.",
    )
    advertise_clients: str = key(
        value_types.link_advertise,
        "",
        "The host:port at which MQTT clients reach this hub. Other hubs send it as Server Reference (5.0) to clients when they are drained.",
    )
    drain_on_stop_s: float = key(
        value_types.duration(0, 3600),
        0.0,
        "How long a hub that gets SIGTERM asks its clients to go, a part of them at a time, before it stops. 0s: not at all; all are closed at once.",
    )
