"""Further listeners of a kind: a name, the keys of their kind, and what they do not say as in the table of their kind."""

from __future__ import annotations

from ipaddress import ip_network
from pathlib import Path

import pytest

from iothub.base.errors import ConfigError
from iothub.config.changes import changes_between
from iothub.config.loader import load
from iothub.config.sections import Config, Listener, Reload, TlsListener

HEAD = "config_version = 1\n"
TLS = ("listeners.tls.port=8883", "listeners.tls.cert_file=/c.pem", "listeners.tls.key_file=/k.pem")
PARTNERS = "listeners.tls.partners.port=8884"


def write(folder: Path, text: str) -> Path:
    file = folder / "iothub.toml"
    file.write_text(HEAD + text, encoding="utf-8")
    return file


def read(*flags: str) -> Config:
    return load(flags=flags).config


def mistakes(**sources: object) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(**sources)  # type: ignore[arg-type]
    return [str(caught.value), *caught.value.details]


def test_listener_takes_what_it_does_not_say_from_its_kind(tmp_path: Path) -> None:
    """From the file, the environment or a flag, as any setting; the port is its own, and the kind's own listener stays as it is."""
    file = write(
        tmp_path,
        """
[listeners.tls]
port = 8883
cert_file = "c.pem"
key_file = "k.pem"
max_connections = 7

[listeners.tls.partners]
port = 8884
client_ca_file = "ca.pem"
client_certificates = "required"

[listeners.ws.hall_1]
port = 8085
path = "/hall"
""",
    )
    variables = {"IOTHUB_LISTENERS__TLS__PARTNERS__BIND": "127.0.0.2", "IOTHUB_LISTENERS__TLS__MIN_TLS": "1.3"}

    listeners = load(file=file, environment=variables, flags=["listeners.tcp.second.port=1884"]).config.listeners

    partners = TlsListener(
        bind="127.0.0.2",
        port=8884,
        max_connections=7,
        cert_file=tmp_path / "c.pem",
        key_file=tmp_path / "k.pem",
        client_ca_file=tmp_path / "ca.pem",
        client_certificates="required",
        min_tls="1.3",
    )
    ports = {name: listener.port for name, listener in listeners.by_name().items()}
    assert ports == {
        "tcp": 1883,
        "tls": 8883,
        "ws": None,
        "wss": None,
        "tcp.second": 1884,
        "tls.partners": 8884,
        "ws.hall_1": 8085,
    }
    assert listeners.find("tls.partners") == partners
    assert (listeners.tls.bind, listeners.tls.client_certificates) == ("127.0.0.1", "auto")


def test_shown_values_say_where_they_come_from_and_can_be_given_back(tmp_path: Path) -> None:
    """An inherited value has the origin of the one that it is inherited from."""
    first = load(flags=[*TLS, PARTNERS, "listeners.tls.partners.deny=10.0.0.0/8"])

    shown = {name: (value, origin) for name, value, origin in first.values()}

    assert shown["listeners.tls.partners.deny"] == ('["10.0.0.0/8"]', "flag --set")
    assert shown["listeners.tls.partners.cert_file"] == ('"/c.pem"', "flag --set")
    assert shown["listeners.tls.partners.bind"] == ('"127.0.0.1"', "default")
    text = "\n".join(f"{name} = {value}" for name, (value, _) in shown.items())
    assert load(file=write(tmp_path, text)).config == first.config


@pytest.mark.parametrize(
    ("flags", "mistake"),
    [
        (
            ("listeners.tcp.second.bind=::1",),
            '--set listeners.tcp.second.bind=::1: listeners.tcp.second needs a port of its own; port = "off" turns it off',
        ),
        (
            ("listeners.tcp.second.port=1883",),
            "listeners.tcp.second.port: 127.0.0.1 port 1883 is already used by listeners.tcp; choose another port",
        ),
        (("listeners.tcp.second.prot=1884",), "did you mean 'listeners.tcp.second.port'?"),
        (("listeners.tcp.second.cert_file=x",), "unknown setting 'listeners.tcp.second.cert_file'"),
        (("listeners.tcp.Second.port=1884",), "a listener's name is 1 to 32 of a-z, 0-9 and single _"),
        (("listeners.tcp.a__b.port=1884",), "a listener's name is 1 to 32 of a-z, 0-9 and single _"),
        (("listeners.tcp.port.x=1884",), "unknown setting 'listeners.tcp.port.x'"),
        (("listeners.tcp.second.port=many",), "listeners.tcp.second.port: expected"),
        (("listeners.tls.partners.port=8884",), "listeners.tls.partners needs cert_file"),
        (
            (*TLS, PARTNERS, "listeners.tls.partners.client_certificates=required"),
            "listeners.tls.partners.client_ca_file, the authorities",
        ),
    ],
)
def test_mistake_is_named(flags: tuple[str, ...], mistake: str) -> None:
    found = mistakes(flags=flags)

    assert mistake in "\n".join(found)


def test_mistake_in_the_table_of_the_kind_is_named_once() -> None:
    """What follows from it for the others is not known."""
    key, bad = "listeners.tls.key_file=/k.pem", "listeners.tls.min_tls=9"

    found = mistakes(flags=["listeners.tls.port=8883", "listeners.tls.cert_file=/c.pem", key, PARTNERS, bad])

    assert sum("min_tls" in text for text in found) == len(found) == 1


def test_empty_table_is_not_passed_over(tmp_path: Path) -> None:
    (mistake,) = mistakes(file=write(tmp_path, "[listeners.tls.partners]\n"))

    assert "line 2: unknown setting 'listeners.tls.partners'" in mistake


def test_listener_that_is_off_needs_nothing() -> None:
    assert read("listeners.tls.partners.port=off").listeners.find("tls.partners") == TlsListener()


def test_reload_applies_access_lists_and_names_what_needs_a_restart() -> None:
    """Also what is inherited: the table of the kind is changed, and with it whoever says nothing else."""
    running = read("listeners.tcp.second.port=1884")

    changes = changes_between(
        running,
        read("listeners.tcp.second.port=1884", "listeners.tcp.deny=10.0.0.0/8", "listeners.tcp.second.backlog=9"),
    )

    assert changes.names(Reload.NOW) == ["listeners.tcp.deny", "listeners.tcp.second.deny"]
    assert changes.names(Reload.RESTART) == ["listeners.tcp.second.backlog"]
    second = changes.config.listeners.find("tcp.second")
    assert (second.deny, second.backlog) == ((ip_network("10.0.0.0/8"),), Listener().backlog)


def test_listener_that_is_new_or_gone_or_moved_waits_for_the_restart() -> None:
    """It is named at each reload until then, and the hub keeps what it has."""
    running = read("listeners.tcp.second.port=1884", "listeners.tcp.third.port=1885")
    wanted = read(
        "listeners.tcp.third.port=1886", "listeners.tcp.third.deny=10.0.0.0/8", "listeners.tcp.fourth.port=1887"
    )

    first = changes_between(running, wanted)
    second = changes_between(first.config, wanted)

    for changes in (first, second):
        assert changes.names(Reload.NOW) == []
        assert changes.names(Reload.RESTART) == [
            "listeners.tcp.fourth.port",
            "listeners.tcp.second.port",
            "listeners.tcp.third.port",
            "listeners.tcp.third.deny",
        ]
        ports = {name: each.port for name, each in changes.config.listeners.by_name().items() if each.port is not None}
        assert ports == {"tcp": 1883, "tcp.second": 1884, "tcp.third": 1885}
