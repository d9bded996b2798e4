"""The tables that the whole codec shares are complete."""

from __future__ import annotations

from iothub.mqtt.constants import PROTOCOL_NAMES, Limits, PacketType


def test_packet_types_are_one_to_fifteen() -> None:
    """Type 0 is forbidden, all others have a name."""
    assert [int(packet_type) for packet_type in PacketType] == list(range(1, 16))


def test_protocol_names_cover_the_served_versions() -> None:
    """3.1, 3.1.1 and 5.0, nothing else."""
    assert sorted(PROTOCOL_NAMES) == [3, 4, 5]


def test_limits_default_to_the_standard_plan() -> None:
    """The figures of the plan `standard`."""
    assert Limits() == Limits(client_id_bytes=256, will_bytes=65_536, user_properties=128, subscribe_filters=100)
