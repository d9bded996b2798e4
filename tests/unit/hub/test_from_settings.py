"""Settings reach the parts that they are for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from iothub.config.datadir import DataDir
from iothub.config.sections import Auth, Cluster, Config, Listeners, Overload, TcpListener, TlsListener, WssListener
from iothub.hub.from_settings import auth_settings, certificate_files, link_files, listener_infos, plane_limits
from iothub.peers.link_files import LinkFiles


def test_listener_without_a_port_is_off() -> None:
    infos = listener_infos(Config(listeners=Listeners(tcp=TcpListener(port=1884), tls=TlsListener())))

    assert [(info.name, info.port) for info in infos] == [("tcp", 1884)]


def test_limits_of_a_listener_reach_its_gate() -> None:
    tcp = TcpListener(port=1884, max_connections=3, max_handshakes=2, backlog=7)
    (info,) = listener_infos(Config(listeners=Listeners(tcp=tcp)))

    assert (info.max_connections, info.max_handshakes, info.backlog) == (3, 2, 7)


HERE = DataDir(Path("/nowhere"))


def test_certificate_of_links_is_watched_like_a_listener_s() -> None:
    """In the data directory, unless a setting names another; none where links need none."""
    theirs = Path("their.pem")

    assert certificate_files(Config(cluster=Cluster(listen="0.0.0.0:1")), HERE) == {
        "cluster": HERE.path / "cluster" / "cert.pem"
    }
    named = Cluster(listen="0.0.0.0:1", certificate_file=theirs)
    assert link_files(Config(cluster=named), HERE) == LinkFiles(
        HERE.path / "cluster" / "ca.pem", theirs, HERE.path / "cluster" / "key.pem"
    )
    for cluster in (Cluster(), Cluster(listen="unix:/a"), Cluster(listen="127.0.0.1:1", insecure=True)):
        assert certificate_files(Config(cluster=cluster), HERE) == {}


def test_certificates_of_open_doors_are_watched() -> None:
    tls = TlsListener(port=8883, cert_file=Path("tls.pem"))
    wss = WssListener(port=None, cert_file=Path("wss.pem"))

    assert certificate_files(Config(listeners=Listeners(tls=tls, wss=wss)), HERE) == {"tls": Path("tls.pem")}


def test_named_listeners_are_listeners_like_the_others() -> None:
    """Of the kind that their name begins with."""
    partners = TlsListener(port=8884, cert_file=Path("partners.pem"), max_connections=3)
    settings = Config(listeners=Listeners(tcp=TcpListener(port=None), named=(("tls.partners", partners),)))

    (info,) = listener_infos(settings)

    assert (info.name, info.port, info.is_tls, info.is_websocket) == ("tls.partners", 8884, True, False)
    assert certificate_files(settings, HERE) == {"tls.partners": Path("partners.pem")}
    assert plane_limits(settings).connections == 3


def test_overload_bounds_reach_the_plane() -> None:
    limits = plane_limits(Config(overload=Overload(buffered_bytes=5 << 20, connection_buffer_bytes=1 << 20)))

    assert (limits.buffered_bytes, limits.out_hard_bytes) == (5 << 20, 1 << 20)


def test_failures_never_ban_when_they_are_off() -> None:
    assert auth_settings(Config(auth=replace(Auth(), failures=None))).failures.failures > 10**6
