"""The known error: each kind has its Reason and the Reason Code the specification gives it."""

from __future__ import annotations

import pytest

from iothub.base.errors import IotHubError
from iothub.base.reasons import Reason
from iothub.mqtt import errors


@pytest.mark.parametrize(
    ("error", "reason", "code"),
    [
        (errors.MalformedPacket("x"), Reason.MALFORMED, 0x81),
        (errors.ProtocolError("x"), Reason.PROTOCOL_ERROR, 0x82),
        (errors.PacketTooLarge("x"), Reason.PACKET_TOO_LARGE, 0x95),
        (errors.UnsupportedVersion("x", version=5), Reason.UNSUPPORTED_VERSION, 0x84),
        (errors.ClientIdInvalid("x"), Reason.CLIENT_ID_INVALID, 0x85),
        (errors.TopicNameInvalid("x"), Reason.TOPIC_NAME_INVALID, 0x90),
        (errors.LimitExceeded("x", limit="user_properties"), Reason.QUOTA, 0x97),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_error_carries_its_reason_and_code(error: errors.MqttError, reason: Reason, code: int) -> None:
    """[MQTT-4.13.1-1] [MQTT3-4.8.0-1] The edge closes with the code of the specification."""
    assert isinstance(error, IotHubError)
    assert (error.reason, error.reason_code) == (reason, code)


def test_error_starts_without_a_version() -> None:
    """Only CONNECT knows one."""
    assert errors.MalformedPacket("x").version == 0
