"""Settings reach the parts that they are for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from iothub.config.sections import Auth, Config, Listeners, Overload, TcpListener, TlsListener, WssListener
from iothub.hub.from_settings import auth_settings, certificate_files, listener_infos, plane_limits


def test_listener_without_a_port_is_off() -> None:
    infos = listener_infos(Config(listeners=Listeners(tcp=TcpListener(port=1884), tls=TlsListener())))

    assert [(info.name, info.port) for info in infos] == [("tcp", 1884)]


def test_limits_of_a_listener_reach_its_gate() -> None:
    tcp = TcpListener(port=1884, max_connections=3, max_handshakes=2, backlog=7)
    (info,) = listener_infos(Config(listeners=Listeners(tcp=tcp)))

    assert (info.max_connections, info.max_handshakes, info.backlog) == (3, 2, 7)


def test_certificates_of_open_doors_are_watched() -> None:
    tls = TlsListener(port=8883, cert_file=Path("tls.pem"))
    wss = WssListener(port=None, cert_file=Path("wss.pem"))

    assert certificate_files(Config(listeners=Listeners(tls=tls, wss=wss))) == {"tls": Path("tls.pem")}


def test_named_listeners_are_listeners_like_the_others() -> None:
    """Of the kind that their name begins with."""
    partners = TlsListener(port=8884, cert_file=Path("partners.pem"), max_connections=3)
    settings = Config(listeners=Listeners(tcp=TcpListener(port=None), named=(("tls.partners", partners),)))

    (info,) = listener_infos(settings)

    assert (info.name, info.port, info.is_tls, info.is_websocket) == ("tls.partners", 8884, True, False)
    assert certificate_files(settings) == {"tls.partners": Path("partners.pem")}
    assert plane_limits(settings).connections == 3


def test_overload_bounds_reach_the_plane() -> None:
    limits = plane_limits(Config(overload=Overload(buffered_bytes=5 << 20, connection_buffer_bytes=1 << 20)))

    assert (limits.buffered_bytes, limits.out_hard_bytes) == (5 << 20, 1 << 20)


def test_failures_never_ban_when_they_are_off() -> None:
    assert auth_settings(Config(auth=replace(Auth(), failures=None))).failures.failures > 10**6
