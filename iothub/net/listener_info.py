"""What one listener is: where it listens, with which filters, and the limits of everybody who comes through it.

Knows no sockets and no configuration files: `iothub.hub.composition.compose` makes it from the configuration; the engine reads `.name`.
"""

from __future__ import annotations

from dataclasses import dataclass

MAX_MQTT_PACKET_BYTES = 268_435_460  # Remaining Length 268,435,455 and its five header bytes (§2.1.4)


@dataclass(frozen=True, slots=True)
class ListenerInfo:
    """One listener. Quantities of 0 mean "the system's default" for buffers and "no limit" for rates.

    `proxy_trusted`: with at least one network, every client must come through such a proxy with a PROXY header.
    `allow` and `deny` speak of the client's address (behind a proxy: the one it announces); `deny` wins, an empty
    `allow` allows all.
    """

    name: str
    bind: str = "127.0.0.1"
    port: int = 0
    path: str = "/mqtt"
    is_tls: bool = False
    is_websocket: bool = False
    backlog: int = 4096
    max_connections: int = 20_000
    max_handshakes: int = 1_000
    accept_rate_per_s: float = 0.0
    receive_buffer_bytes: int = 0
    send_buffer_bytes: int = 0
    connect_timeout_s: float = 10.0
    proxy_trusted: tuple[str, ...] = ()
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    cert_file: str = ""
    key_file: str = ""
    client_ca_file: str = ""
    client_certificates: str = "auto"  # none, optional, required; auto: required with `client_ca_file`, else none
    min_tls: str = "1.2"
    max_frame_bytes: int = MAX_MQTT_PACKET_BYTES
    is_port_shared: bool = False  # several workers on one port (SO_REUSEPORT)


def listener_info(name: str, **options: object) -> ListenerInfo:
    """Make a listener of one of the four kinds `tcp tls ws wss`, which its name begins with (`tls`, `tls.partners`) and which settles its filters."""
    kinds = {"tcp": (False, False), "tls": (True, False), "ws": (False, True), "wss": (True, True)}
    is_tls, is_websocket = kinds[name.partition(".")[0]]
    return ListenerInfo(name=name, is_tls=is_tls, is_websocket=is_websocket, **options)  # type: ignore[arg-type]
