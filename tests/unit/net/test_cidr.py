"""Networks and addresses."""

from __future__ import annotations

import pytest

from iothub.base.errors import ConfigError
from iothub.net.cidr import Networks, peer_name, plain_ip


def test_networks_contain_addresses_of_both_families() -> None:
    """An IPv4 address inside IPv6 counts as IPv4; what is no address is in no network."""
    networks = Networks(("10.0.0.0/8", "2001:db8::/32", "192.0.2.7"))
    assert "10.255.0.1" in networks
    assert "::ffff:10.1.2.3" in networks
    assert "2001:db8::9" in networks
    assert "192.0.2.7" in networks
    assert "192.0.2.8" not in networks
    assert "elsewhere" not in networks
    assert not Networks(())
    assert "10.0.0.1" not in Networks(())


def test_networks_that_are_none_are_refused_by_name() -> None:
    """Host bits and typing errors stop the start."""
    for text in ("10.0.0.1/8", "10.0.0.0/33", "example.org"):
        with pytest.raises(ConfigError, match=text):
            Networks((text,))


def test_addresses_are_written_one_way() -> None:
    """Brackets around IPv6, no zone, no mapped form."""
    assert plain_ip("::ffff:10.1.2.3") == "10.1.2.3"
    assert plain_ip("fe80::1%eth0") == "fe80::1"
    assert peer_name("::1", 5) == "[::1]:5"
    assert peer_name("10.1.2.3", 5) == "10.1.2.3:5"
