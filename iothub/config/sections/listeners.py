"""The listeners that clients connect to."""
# ruff: noqa: RUF009 - `key` is evaluated once per class, as `field` is; its defaults are immutable

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

from iothub.base.units import Network, Rate
from iothub.config import value_types
from iothub.config.sections.key import Reload, key


@dataclass(frozen=True, slots=True)
class Listener:
    """Settings of every listener. A listener without a port is off."""

    bind: str = key(value_types.address, "127.0.0.1", 'Address to listen on; "0.0.0.0" or "::" for every interface.')
    port: int | None = key(value_types.port, None, '0 takes any free port; "off" turns the listener off.')
    max_connections: int = key(
        value_types.integer(1, 10_000_000),
        20_000,
        "Maximum number of open connections; further ones are refused.",
        Reload.NOW,
    )
    max_handshakes: int = key(
        value_types.integer(1, 1_000_000),
        1000,
        "Maximum number of TLS and WebSocket handshakes at once; further connections are refused.",
        Reload.NOW,
    )
    backlog: int = key(
        value_types.integer(1, 65535), 4096, "Maximum number of connections that wait in the kernel's accept queue."
    )
    accept_rate: Rate | None = key(
        value_types.rate, None, "Maximum rate of new connections; the others wait in the accept queue.", Reload.NOW
    )
    proxy_trusted: tuple[Network, ...] = key(
        value_types.networks,
        (),
        "Addresses of proxies; these must send a PROXY protocol header (v1 or v2), others must not.",
        Reload.NOW,
    )
    allow: tuple[Network, ...] = key(
        value_types.networks, (), "If not empty, only these addresses may connect.", Reload.NOW
    )
    deny: tuple[Network, ...] = key(
        value_types.networks, (), "These addresses may not connect; checked before `allow`.", Reload.NOW
    )
    send_buffer_bytes: int = key(
        value_types.size(0, 1 << 30), 0, "SO_SNDBUF of each connection; 0 leaves it to the kernel."
    )
    receive_buffer_bytes: int = key(
        value_types.size(0, 1 << 30), 0, "SO_RCVBUF of each connection; 0 leaves it to the kernel."
    )


@dataclass(frozen=True, slots=True)
class TcpListener(Listener):
    """MQTT over TCP; on by default."""

    port: int | None = key(value_types.port, 1883, '0 takes any free port; "off" turns the listener off.')


@dataclass(frozen=True, slots=True)
class TlsListener(Listener):
    """MQTT over TLS."""

    cert_file: Path | None = key(
        value_types.path, None, "Certificate chain in PEM, the server's certificate first. Required.", Reload.NOW
    )
    key_file: Path | None = key(
        value_types.path, None, "Private key in PEM; only the hub should be able to read it. Required.", Reload.NOW
    )
    client_ca_file: Path | None = key(
        value_types.path,
        None,
        "Authorities (PEM) that sign the certificates of clients; see `client_certificates`.",
        Reload.NOW,
    )
    client_certificates: str = key(
        value_types.choice("auto", "none", "optional", "required"),
        "auto",
        "Whether clients are asked for a certificate. optional: a client may connect without one, but not with one that none of the authorities "
        "signed; auto: required with `client_ca_file`, else none.",
        Reload.NOW,
    )
    min_tls: str = key(value_types.choice("1.2", "1.3"), "1.2", "Minimum TLS version.", Reload.NOW)


@dataclass(frozen=True, slots=True)
class WsListener(Listener):
    """MQTT over WebSocket."""

    path: str = key(value_types.url_path, "/mqtt", "Path of the WebSocket; other paths get 404.", Reload.NOW)


@dataclass(frozen=True, slots=True)
class WssListener(TlsListener):
    """MQTT over WebSocket over TLS."""

    path: str = key(value_types.url_path, "/mqtt", "Path of the WebSocket; other paths get 404.", Reload.NOW)


KINDS = ("tcp", "tls", "ws", "wss")


def kind_of(name: str) -> str:
    """Return the kind of a listener: that of `tls` and of `tls.partners` is `tls`."""
    return name.partition(".")[0]


@dataclass(frozen=True, slots=True)
class Listeners:
    """One listener of each kind, which bears the name of its kind, and further ones with names such as `tls.partners`."""

    tcp: TcpListener = field(default_factory=TcpListener)
    tls: TlsListener = field(default_factory=TlsListener)
    ws: WsListener = field(default_factory=WsListener)
    wss: WssListener = field(default_factory=WssListener)
    named: tuple[tuple[str, Listener], ...] = ()

    def by_name(self) -> dict[str, Listener]:
        """Return all listeners, those that are off included."""
        return {**{kind: getattr(self, kind) for kind in KINDS}, **dict(self.named)}

    def find(self, name: str) -> Listener:
        """Return one listener; that of a name that is not there is off, with the settings of its kind."""
        found = self.by_name().get(name)
        return replace(getattr(self, kind_of(name)), port=None) if found is None else found
