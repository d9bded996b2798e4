"""What a peer may not be sent is shortened or withheld."""

from __future__ import annotations

import pytest

from iothub.mqtt.encoder import encode
from iothub.mqtt.outbound import encode_within, without_problem_information
from iothub.mqtt.packets import (
    Auth,
    Connack,
    Disconnect,
    Packet,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Unsuback,
)
from iothub.mqtt.properties import Properties

WORDY = Properties(reason_string="because of this", user_properties=(("key", "value"),))
BRIEF = Properties(user_properties=(("key", "value"),))
METHOD = {"authentication_method": "SCRAM"}
ANSWERS: list[tuple[Packet, Packet, Packet]] = [
    (Connack(0x87, properties=WORDY), Connack(0x87, properties=BRIEF), Connack(0x87)),
    (Puback(1, 0x87, WORDY), Puback(1, 0x87, BRIEF), Puback(1, 0x87)),
    (Pubrec(1, 0x87, WORDY), Pubrec(1, 0x87, BRIEF), Pubrec(1, 0x87)),
    (Pubrel(1, 0x92, WORDY), Pubrel(1, 0x92, BRIEF), Pubrel(1, 0x92)),
    (Pubcomp(1, 0x92, WORDY), Pubcomp(1, 0x92, BRIEF), Pubcomp(1, 0x92)),
    (Suback(1, (0x87,), WORDY), Suback(1, (0x87,), BRIEF), Suback(1, (0x87,))),
    (Unsuback(1, (0x87,), WORDY), Unsuback(1, (0x87,), BRIEF), Unsuback(1, (0x87,))),
    (Disconnect(0x87, WORDY), Disconnect(0x87, BRIEF), Disconnect(0x87)),
    (
        Auth(0x18, Properties(reason_string="because", user_properties=(("key", "value"),), **METHOD)),
        Auth(0x18, Properties(user_properties=(("key", "value"),), **METHOD)),
        Auth(0x18, Properties(**METHOD)),
    ),
]


@pytest.mark.parametrize(("wordy", "brief", "bare"), ANSWERS, ids=lambda packet: type(packet).__name__)
def test_answer_too_long_loses_its_reason_string_then_its_user_properties(
    wordy: Packet, brief: Packet, bare: Packet
) -> None:
    """[MQTT-3.2.2-19] [MQTT-3.2.2-20] [MQTT-3.4.2-2] [MQTT-3.4.2-3] [MQTT-3.5.2-2] [MQTT-3.5.2-3] [MQTT-3.6.2-2] [MQTT-3.6.2-3]
    [MQTT-3.7.2-2] [MQTT-3.7.2-3] [MQTT-3.9.2-1] [MQTT-3.9.2-2] [MQTT-3.11.2-1] [MQTT-3.11.2-2] [MQTT-3.14.2-3] [MQTT-3.14.2-4]
    [MQTT-3.15.2-2] [MQTT-3.15.2-3] [MQTT-3.1.2-24]: at each size the most informative form that fits.
    """
    forms = [encode(packet, 5) for packet in (wordy, brief, bare)]

    for size in range(len(forms[0]) + 1):
        fitting = [form for form in forms if len(form) <= size]
        assert encode_within(wordy, 5, size) == (fitting[0] if fitting else None)


@pytest.mark.parametrize("version", [4, 5])
def test_publish_too_long_is_never_shortened(version: int) -> None:
    """[MQTT-3.1.2-24] [MQTT-3.1.2-25] The caller learns that it cannot be sent and treats it as delivered."""
    packet = Publish("a", b"x" * 10, properties=BRIEF)
    size = len(encode(packet, version))

    assert encode_within(packet, version, size) == encode(packet, version)
    assert encode_within(packet, version, size - 1) is None


def test_answer_of_3_x_has_nothing_to_lose() -> None:
    """No properties, no shorter form."""
    assert encode_within(Puback(1, properties=WORDY), 4, 3) is None


@pytest.mark.parametrize(
    ("wordy", "bare"), [(wordy, bare) for wordy, _, bare in ANSWERS], ids=lambda packet: type(packet).__name__
)
def test_problem_information_stays_only_in_connack_and_disconnect(wordy: Packet, bare: Packet) -> None:
    """[MQTT-3.1.2-29] A client that did not want it gets it on no other packet."""
    keeps = isinstance(wordy, Connack | Disconnect)

    assert without_problem_information(wordy) == (wordy if keeps else bare)


def test_problem_information_leaves_a_publish_alone() -> None:
    """[MQTT-3.1.2-29] User Properties of a message are the publisher's."""
    packet = Publish("a", properties=BRIEF)

    assert without_problem_information(packet) is packet
