"""Addresses of hubs: two forms, and nothing that another hub wrote is taken for more than text."""

from __future__ import annotations

from pathlib import Path

import pytest

from iothub.base.errors import ConfigError
from iothub.base.units import Endpoint
from iothub.peers.addresses import UnixPath, parse_address


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("hub-1.example.com:7883", Endpoint("hub-1.example.com", 7883)),
        ("127.0.0.1:1", Endpoint("127.0.0.1", 1)),
        ("[::1]:65535", Endpoint("::1", 65535)),
        ("unix:/run/a b.sock", UnixPath(Path("/run/a b.sock"))),
    ],
)
def test_address_is_read(text: str, place: object) -> None:
    assert parse_address(text) == place


@pytest.mark.parametrize("text", ["", "host", "host:", ":1", "host:x", "host:65536", "host:-1", "host:99999999999"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="is no address of a hub"):
        parse_address(text)
