"""What only TLS and WebSocket listeners do, on real sockets and in both twins."""

from __future__ import annotations

import contextlib
import ssl

import pytest

from iothub.net.listener_info import listener_info
from iothub.testing.byte_clients import WebSocketClient
from iothub.testing.certificates import Authority


def client_context(authority: Authority, pair=None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=authority.ca_file)
    if pair is not None:
        context.load_cert_chain(pair.cert_file, pair.key_file)
    return context


@pytest.mark.parametrize("name", ["tls", "wss"])
def test_client_certificate_reaches_the_plane(start, authority, pair, name) -> None:
    """The verified name is the connection's certificate subject; without a certificate nobody gets to the plane."""
    hub = start(listener_info(name, cert_file=pair.cert_file, key_file=pair.key_file, client_ca_file=authority.ca_file))
    hub.tls = client_context(authority, authority.issue("client", ("acme/dev1",)))
    client = hub.client(name)
    client.send(b"hi")
    assert client.receive() == b"hi"
    assert hub.only().certificate_subject == "CN=acme/dev1"
    hub.tls = client_context(authority)
    with contextlib.suppress(OSError):
        stranger = hub.client(name)
        stranger.send(b"hi")
        assert stranger.receive() == b""
    hub.until(lambda: hub.listeners.gates()[name].connections == 1)
    assert len(hub.plane.connections) == 1


def test_reload_gives_new_handshakes_the_new_certificate(start, tmp_path) -> None:
    """Running connections stay as they are."""
    authority = Authority(tmp_path)
    pair = authority.issue("server", ("first",))
    info = listener_info("tls", cert_file=pair.cert_file, key_file=pair.key_file)
    hub = start(info)
    hub.tls = client_context(authority)
    first = hub.client("tls")
    authority.issue("server", ("second",))
    hub.thread.call(lambda: hub.listeners.prepare([info])())
    second = hub.client("tls")
    names = [dict(part[0] for part in client.sock.getpeercert()["subject"])["commonName"] for client in (first, second)]
    assert names == ["first", "second"]
    first.send(b"still here")
    assert first.receive() == b"still here"


def test_handshake_storm_leaves_traffic_its_turns(start, authority, pair) -> None:
    """A hundred handshakes at once: a plain client is served in between, and all of them get through."""
    hub = start(listener_info("tcp"), listener_info("tls", cert_file=pair.cert_file, key_file=pair.key_file))
    context = client_context(authority)
    witness = hub.client("tcp")
    storm = []
    for _ in range(100):
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
        with contextlib.suppress(ssl.SSLWantReadError):
            tls.do_handshake()
        storm.append((hub.connect("tls"), tls, incoming, outgoing))
    for sock, _, _, outgoing in storm:
        sock.sendall(outgoing.read())
    witness.send(b"ping")
    assert witness.receive() == b"ping"
    for sock, tls, incoming, outgoing in storm:
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                incoming.write(sock.recv(1 << 16))
        sock.sendall(outgoing.read())
    hub.until(lambda: len(hub.plane.connections) == 101)
    assert hub.listeners.gates()["tls"].handshakes == 0


def test_too_many_pending_handshakes_are_refused(start, authority, pair) -> None:
    """Whoever is through stays."""
    hub = start(listener_info("tls", cert_file=pair.cert_file, key_file=pair.key_file, max_handshakes=2))
    hub.tls = client_context(authority)
    through = hub.client("tls")
    through.send(b"x")
    assert through.receive() == b"x"
    for _ in range(2):
        hub.connect("tls")
    hub.until(lambda: hub.listeners.gates()["tls"].handshakes == 2)
    assert hub.is_refused("tls")
    through.send(b"y")
    assert through.receive() == b"y"


def test_websocket_answers_pings_and_names_its_sub_protocol(start) -> None:
    """[MQTT-6.0.0-4] [MQTT3-6.0.0-4], and RFC 6455 section 5.5.2."""
    hub = start(listener_info("ws"))
    client = hub.client("ws")
    assert isinstance(client, WebSocketClient)
    assert client.sub_protocol == "mqtt"
    client.ping(b"alive?")
    assert client.pongs == [b"alive?"]
    client.send(b"data")
    assert client.receive() == b"data"


@pytest.mark.parametrize(
    ("path", "protocols", "status"), [("/other", ("mqtt",), 404), ("/mqtt", ("chat",), 400), ("/mqtt", (), 400)]
)
def test_websocket_refusals_are_http(start, path, protocols, status) -> None:
    """[MQTT-6.0.0-3]: another path, or no sub-protocol of ours."""
    hub = start(listener_info("ws"))
    assert WebSocketClient(hub.connect("ws"), path, protocols).status == status
    hub.until(lambda: hub.listeners.gates()["ws"].connections == 0)
    assert hub.plane.connections == []


def test_plain_http_request_gets_an_answer_and_the_end(start) -> None:
    """A browser, or a health check that went to the wrong port."""
    hub = start(listener_info("ws"))
    browser = hub.connect("ws")
    browser.sendall(b"GET /mqtt HTTP/1.1\r\nHost: hub\r\n\r\n")
    answer = b""
    while chunk := browser.recv(4096):
        answer += chunk
    assert answer.startswith(b"HTTP/1.1 426 Upgrade Required\r\n")


def test_websocket_text_frame_closes_with_1003(start) -> None:
    """[MQTT-6.0.0-1] [MQTT3-6.0.0-1]."""
    hub = start(listener_info("ws"))
    client = hub.client("ws")
    client.sock.sendall(b"\x81\x81\x00\x00\x00\x00x")
    assert client.receive() == b""
    assert client.close_code == 1003
    hub.until(lambda: len(hub.plane.connections[0].lost_for) == 1)
