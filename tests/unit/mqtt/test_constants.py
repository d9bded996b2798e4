"""The tables that the whole codec shares are complete."""

from __future__ import annotations

from iothub.mqtt.constants import FROM_CLIENT_ONLY, FROM_SERVER_ONLY, PROTOCOL_NAMES, Limits, PacketType


def test_packet_types_are_one_to_fifteen() -> None:
    """Type 0 is forbidden, all others have a name."""
    assert [int(packet_type) for packet_type in PacketType] == list(range(1, 16))


def test_directions_pair_requests_with_answers() -> None:
    """Each packet of the client's that has its own answer has it in the server's set, and none flows both ways by mistake."""
    answers = {PacketType(request + 1) for request in FROM_CLIENT_ONLY}

    assert answers == FROM_SERVER_ONLY


def test_protocol_names_cover_the_served_versions() -> None:
    """3.1, 3.1.1 and 5.0, nothing else."""
    assert sorted(PROTOCOL_NAMES) == [3, 4, 5]


def test_limits_default_to_the_standard_plan() -> None:
    """The figures of the plan `standard`."""
    assert Limits() == Limits(client_id_bytes=256, will_bytes=65_536, user_properties=128, subscribe_filters=100)
