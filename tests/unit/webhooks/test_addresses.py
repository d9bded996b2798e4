"""Where a webhook may lead: public addresses, and private ones that the operator allows."""

from __future__ import annotations

import ipaddress

import pytest

from iothub.base.errors import ConfigError, DeniedError
from iothub_services.webhooks.addresses import Place, checked_addresses, place_of, refuse_literal


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "10.1.2.3",
        "172.16.0.1",
        "192.168.1.1",
        "169.254.169.254",
        "100.64.0.1",
        "0.0.0.0",
        "224.0.0.1",
        "255.255.255.255",
        "::1",
        "::",
        "fe80::1%eth0",
        "fd00::1",
        "::ffff:10.0.0.1",
        "ff02::1",
        "64:ff9b::a9fe:a9fe",
        "64:ff9b:1::a00:1",
        "2002:7f00:1::",
        "2001:0:7f00:1::",
        "::7f00:1",
        "::ffff:0:7f00:1",
        "5f00::1",
        "3fff::1",
        "192.0.0.192",
        "192.88.99.1",
        "198.18.0.1",
        "168.63.129.16",
    ],
)
def test_an_address_that_is_not_public_is_refused(address: str) -> None:
    with pytest.raises(DeniedError, match="not public"):
        checked_addresses([address], ())


def test_one_private_address_of_several_is_enough_to_refuse() -> None:
    with pytest.raises(DeniedError):
        checked_addresses(["93.184.216.34", "10.0.0.1"], ())


def test_public_addresses_and_those_that_are_allowed_pass() -> None:
    allowed = (ipaddress.ip_network("10.1.0.0/16"), ipaddress.ip_network("fd00::/8"))
    found = ["93.184.216.34", "10.1.2.3", "fd00::5", "2606:2800:220:1:248:1893:25c8:1946"]

    assert checked_addresses(found, allowed) == found
    with pytest.raises(DeniedError):
        checked_addresses(["10.2.0.1"], allowed)


@pytest.mark.parametrize(
    ("url", "place", "host"),
    [
        ("https://a.example/x?y=1", Place(True, "a.example", 443, "/x?y=1"), "a.example"),
        ("http://a.example:8080", Place(False, "a.example", 8080, "/"), "a.example:8080"),
        ("https://[2001:db8::1]:8443/", Place(True, "2001:db8::1", 8443, "/"), "[2001:db8::1]:8443"),
    ],
)
def test_a_url_is_taken_apart(url: str, place: Place, host: str) -> None:
    assert place_of(url) == place
    assert place.host_header == host


@pytest.mark.parametrize("url", ["https://", "x", "https://a:b@c/", "https://a/\n", "https://[::1"])
def test_what_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="URL"):
        place_of(url)


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "127.1",
        "2130706433",
        "0x7f.1",
        "10.0.0.1",
        "169.254.169.254",
        "[::1]",
        "[fe80::1]",
        "[::ffff:10.0.0.1]",
    ],
)
def test_private_address_in_a_url_is_refused_in_every_notation(host: str) -> None:
    place = place_of(f"http://{host}:8080/x")

    with pytest.raises(ConfigError, match=r"is not public; expected .* the setting webhooks\.allow_networks"):
        refuse_literal(place, ())


@pytest.mark.parametrize("host", ["93.184.216.34", "[2606:2800:220:1::1]", "10.1.2.3", "localhost", "inner.example"])
def test_public_and_allowed_addresses_and_names_are_not_refused_beforehand(host: str) -> None:
    refuse_literal(place_of(f"http://{host}/"), (ipaddress.ip_network("10.1.0.0/16"),))
