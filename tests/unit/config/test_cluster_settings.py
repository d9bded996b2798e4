"""Settings of links (`iothub.config.cluster_rules`): what can be listened at, and which combinations are refused before a hub starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from iothub.base.errors import ConfigError
from iothub.config.check import load_checked
from iothub.config.loader import load

SHARED = ("events.driver=kafka", "kafka.brokers=k:1", "listeners.tcp.port=1883")


@pytest.mark.parametrize(
    "address", ["127.0.0.1:7883", "0.0.0.0:7883", "[::1]:7883", "[::]:7883", "unix:/run/iothub/one.sock"]
)
def test_addresses_that_can_be_listened_at_are_taken(address: str) -> None:
    loaded = load(flags=(*SHARED, f"cluster.listen={address}"))

    assert loaded.config.cluster.listen == address


@pytest.mark.parametrize(
    "address",
    ["7883", "hub-1:7883", "127.0.0.1", "127.0.0.1:0", "127.0.0.1:65536", "unix:relative", "unix:/" + "x" * 300],
)
def test_addresses_that_cannot_are_refused(address: str) -> None:
    """A port of 0 would be another one at each start, and the others read it from the accounts."""
    with pytest.raises(ConfigError, match=r"cluster\.listen: expected "):
        load(flags=(*SHARED, f"cluster.listen={address}"))


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (("cluster.listen=127.0.0.1:1",), r"this hub's stores are files of its own \(events\.driver = \"sqlite\"\)"),
        ((*SHARED, "cluster.listen=0.0.0.0:1", "cluster.insecure=true"), r"is not a loopback address"),
        ((*SHARED, "cluster.listen=unix:/a", "cluster.advertise=a:1"), r"is a Unix socket.*remove cluster\.advertise"),
        ((*SHARED, "cluster.listen=127.0.0.1:1", "cluster.advertise=a"), r"cluster\.advertise: expected host:port"),
        (("cluster.advertise_clients=a",), r"cluster\.advertise_clients: expected host:port"),
        (("cluster.drain_on_stop=true",), r"cluster\.drain_on_stop: expected a duration"),
        (("cluster.drain_on_stop=2h",), r"cluster\.drain_on_stop: "),
        ((*SHARED, "cluster.insecure=yes"), r"cluster\.insecure: expected true or false"),
        ((*SHARED, "cluster.link_bytes=1"), r"cluster\.link_bytes: expected a size"),
    ],
    ids=["own stores", "insecure", "unix", "advertise", "clients", "drain", "long drain", "flag", "size"],
)
def test_settings_that_do_not_fit_are_refused(flags: tuple[str, ...], expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        load(flags=flags)


def test_insecure_links_on_loopback_are_taken() -> None:
    for address in ("127.0.0.1:1", "[::1]:1"):
        assert load(flags=(*SHARED, f"cluster.listen={address}", "cluster.insecure=true")).config.cluster.insecure


def test_files_that_are_named_must_be_there(tmp_path: Path) -> None:
    """Only where they are used."""
    flags = (*SHARED, "cluster.listen=127.0.0.1:1", f"cluster.ca_file={tmp_path}/none.pem")

    with pytest.raises(ConfigError, match=r"cluster\.ca_file: .*none\.pem: No such file"):
        load_checked(flags=flags)
    load_checked(flags=(*flags, "cluster.insecure=true"))


def test_key_that_others_can_read_is_a_warning(tmp_path: Path) -> None:
    key = tmp_path / "key.pem"
    key.touch(0o644)

    checked = load_checked(flags=(*SHARED, "cluster.listen=127.0.0.1:1", f"cluster.key_file={key}"))

    assert checked.warnings == [f"cluster.key_file: {key} can be read by others; run `chmod 600 {key}`"]
