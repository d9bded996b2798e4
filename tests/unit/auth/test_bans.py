"""Bans by people, and networks of a tenant."""

from __future__ import annotations

import pytest

from iothub_services.auth.bans import find_ban, is_address_permitted
from iothub_services.auth.port import Ban, BanKind

NOW = 1_700_000_000.0


def is_banned(ban: Ban, *, device: str = "dev1", client_id: str = "c1", address: str = "192.0.2.7") -> bool:
    return find_ban([ban], device=device, client_id=client_id, address=address, now=NOW) is ban


def test_ban_names_a_device_a_client_id_or_an_address() -> None:
    """Each kind looks at its own subject, literally."""
    assert is_banned(Ban(BanKind.DEVICE, "dev1"))
    assert not is_banned(Ban(BanKind.DEVICE, "c1"))
    assert is_banned(Ban(BanKind.CLIENT_ID, "c1"))
    assert not is_banned(Ban(BanKind.CLIENT_ID, "+"))
    assert is_banned(Ban(BanKind.ADDRESS, "192.0.2.7"))
    assert is_banned(Ban(BanKind.ADDRESS, "192.0.2.0/24"))
    assert not is_banned(Ban(BanKind.ADDRESS, "192.0.3.0/24"))


def test_ban_ends_at_its_time() -> None:
    """Zero is for good."""
    assert not is_banned(Ban(BanKind.DEVICE, "dev1", until=NOW))
    assert is_banned(Ban(BanKind.DEVICE, "dev1", until=NOW + 1))


def test_ban_that_is_over_hides_none_that_is_in_force() -> None:
    over, in_force = Ban(BanKind.DEVICE, "dev1", until=NOW), Ban(BanKind.CLIENT_ID, "c1")

    assert find_ban([over, in_force], device="dev1", client_id="c1", address="192.0.2.7", now=NOW) is in_force


def test_mapped_address_is_the_ipv4_host() -> None:
    """A dual-stack listener is not a way around."""
    assert is_banned(Ban(BanKind.ADDRESS, "192.0.2.7"), address="::ffff:192.0.2.7")
    assert not is_banned(Ban(BanKind.ADDRESS, "192.0.2.7"), address="2001:db8::1")


def test_damaged_ban_keeps_out() -> None:
    """What cannot be read never grants access."""
    for damaged in ("192.0.2.0/99", "198.51.100.7/24"):
        assert is_banned(Ban(BanKind.ADDRESS, damaged))
    assert is_banned(Ban(BanKind.ADDRESS, "192.0.2.0/24"), address="garbage")


@pytest.mark.parametrize(
    ("allowed", "denied", "is_permitted"),
    [
        ((), (), True),
        (("192.0.2.0/24",), (), True),
        (("198.51.100.0/24",), (), False),
        (("198.51.100.0/24", "192.0.2.7/32"), (), True),
        ((), ("192.0.2.0/24",), False),
        (("192.0.2.0/24",), ("192.0.2.7",), False),
        (("nonsense",), (), False),
        ((), ("nonsense",), False),
    ],
)
def test_networks_of_a_tenant(allowed: tuple[str, ...], denied: tuple[str, ...], is_permitted: bool) -> None:
    """Denied comes first; an allow list, once there is one, must name the address."""
    assert is_address_permitted("192.0.2.7", allowed=allowed, denied=denied) is is_permitted
