"""The HTTP request in front of a WebSocket: accepted with MQTT's sub-protocol, or refused with a status."""

from __future__ import annotations

import pytest

from iothub.net.filters import FilterClosed
from iothub.net.websocket_upgrade import Upgrade

GOOD = {
    "Host": "hub",
    "Upgrade": "websocket",
    "Connection": "keep-alive, Upgrade",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Protocol": "chat, mqtt",
}


def request(target: str = "/mqtt", method: str = "GET", version: str = "1.1", **changes: str | None) -> bytes:
    headers = dict(GOOD)
    for name, value in changes.items():
        key = name.replace("_", "-")
        headers = {k: v for k, v in headers.items() if k.lower() != key.lower()}
        if value is not None:
            headers[key] = value
    lines = [f"{method} {target} HTTP/{version}", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
    return "\r\n".join(lines).encode()


def refused(data: bytes) -> bytes:
    upgrade = Upgrade("/mqtt")
    chunks = [data[at : at + 4096] for at in range(0, len(data), 4096)]
    with pytest.raises(FilterClosed):
        any(map(upgrade.receive, chunks))
    assert b"Connection: " in upgrade.replies
    assert b"close\r\n" in upgrade.replies
    return upgrade.replies.split(b" ", 2)[1]


def test_upgrade_answers_with_the_sub_protocol() -> None:
    """[MQTT-6.0.0-3] [MQTT-6.0.0-4]: `mqtt` is required and answered; the digest is RFC 6455's own example."""
    upgrade = Upgrade("/mqtt")
    assert upgrade.receive(request("/mqtt?token=1") + b"\x82\x80")
    assert upgrade.replies.startswith(b"HTTP/1.1 101 ")
    assert b"\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n" in upgrade.replies
    assert upgrade.replies.endswith(b"\r\nSec-WebSocket-Protocol: mqtt\r\n\r\n")
    assert upgrade.rest == b"\x82\x80"


def test_upgrade_accepts_the_sub_protocol_of_old_clients() -> None:
    """MQTT 3.1 over WebSocket calls itself `mqttv3.1`."""
    upgrade = Upgrade("/mqtt")
    assert upgrade.receive(request(sec_websocket_protocol="mqttv3.1"))
    assert b"Sec-WebSocket-Protocol: mqttv3.1\r\n" in upgrade.replies


def test_upgrade_may_arrive_byte_by_byte() -> None:
    """Chunks mean nothing."""
    upgrade = Upgrade("/mqtt")
    data = request()
    assert [upgrade.receive(data[at : at + 1]) for at in range(len(data))] == [False] * (len(data) - 1) + [True]


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"GET / HTTP/1.1\r\nHost: hub\r\n\r\n", b"404"),
        (b"GET /mqtt HTTP/1.1\r\nHost: hub\r\n\r\n", b"426"),
        (request("/other"), b"404"),
        (request(method="POST"), b"405"),
        (request(upgrade="h2c"), b"426"),
        (request(connection="close"), b"426"),
        (request(sec_websocket_version="8"), b"426"),
        (request(sec_websocket_key="short"), b"400"),
        (request(sec_websocket_key="c2hvcnQ="), b"400"),
        (request(sec_websocket_key=None), b"400"),
        (request(sec_websocket_protocol="chat"), b"400"),
        (request(sec_websocket_protocol=None), b"400"),
        (request(version="1.0"), b"400"),
        (request(host=None), b"400"),
        (b"\x10\x0c\x00\x04MQTT\x04\x02\r\n\r\n", b"400"),
        (b"GET /mqtt HTTP/1.1\r\nX: " + b"x" * 20_000, b"431"),
        (request(x_long="x" * 9000), b"431"),
    ],
)
def test_upgrade_refuses(data: bytes, status: bytes) -> None:
    """Whatever is not our WebSocket gets one HTTP answer and the end."""
    assert refused(data) == status
