"""Packets as values."""

from __future__ import annotations

from dataclasses import FrozenInstanceError

import pytest

from iothub.mqtt.packets import Connect, Publish


def test_packet_is_frozen() -> None:
    """A decoded packet can be shared without a copy."""
    packet = Publish("a")

    with pytest.raises(FrozenInstanceError):
        packet.topic = "b"  # type: ignore[misc]  # that it is refused is the point


def test_packets_with_equal_fields_are_equal() -> None:
    """Values, not identities."""
    assert Publish("a", b"x") == Publish("a", b"x")
    assert Publish("a", b"x") != Publish("a", b"y")


def test_connect_never_shows_its_password() -> None:
    """Secrets stay out of logs, also by accident."""
    assert "secret" not in repr(Connect("c", username="u", password=b"secret"))
