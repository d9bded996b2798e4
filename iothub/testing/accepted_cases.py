"""Packets that every parser must accept, as bytes beside the packet they mean.

Knows no parser. For one packet of each type in each version, and for the edges that implementations get wrong.
"""

from __future__ import annotations

from typing import Final

from iothub.mqtt.packets import (
    Auth,
    Connack,
    Disconnect,
    Packet,
    Pingreq,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
    Unsubscribe,
)
from iothub.mqtt.properties import Properties
from iothub.testing.connect_cases import CONNECTS
from iothub.testing.wire_bytes import PacketCase, frame, props, text, u16

_ID: Final = u16(0x1234)
_PACKET_ID: Final = 0x1234


def _case(name: str, version: int, data: bytes, expected: Packet, proves: str = "") -> PacketCase:
    return PacketCase(name, version, data, expected, proves)


def _answer(name: str, version: int, data: bytes, expected: Packet, proves: str = "") -> PacketCase:
    return PacketCase(name, version, data, expected, proves, is_answer=True)


CONNACKS: Final = (
    _answer("connack 3.1.1", 4, frame(0x20, b"\x00\x00"), Connack()),
    _answer("connack 3.1.1 session present", 4, frame(0x20, b"\x01\x00"), Connack(0, True)),
    _answer("connack 3.1.1 refused", 4, frame(0x20, b"\x00\x05"), Connack(5)),
    _answer("connack 3.1 refused", 3, frame(0x20, b"\x00\x02"), Connack(2)),
    _answer("connack 5.0", 5, frame(0x20, b"\x01\x00\x00"), Connack(0, True), "[MQTT-2.2.2-1]"),
    _answer("connack 5.0 refused", 5, frame(0x20, b"\x00\x97\x00"), Connack(0x97), "[MQTT-3.2.2-8]"),
    _answer(
        "connack 5.0 everything",
        5,
        frame(
            0x20,
            b"\x00\x00",
            props(
                b"\x11\x00\x00\x00\x3c",
                b"\x12" + text("auto-1"),
                b"\x13\x00\x1e",
                b"\x15" + text("SCRAM"),
                b"\x16" + text(b"\x09"),
                b"\x1a" + text("info"),
                b"\x1c" + text("other:1883"),
                b"\x1f" + text("fine"),
                b"\x21\x00\x40",
                b"\x22\x00\x10",
                b"\x24\x01",
                b"\x25\x00",
                b"\x26" + text("k") + text("v"),
                b"\x27\x00\x10\x00\x00",
                b"\x28\x01",
                b"\x29\x01",
                b"\x2a\x00",
            ),
        ),
        Connack(
            properties=Properties(
                session_expiry_interval_s=60,
                assigned_client_identifier="auto-1",
                server_keep_alive_s=30,
                authentication_method="SCRAM",
                authentication_data=b"\x09",
                response_information="info",
                server_reference="other:1883",
                reason_string="fine",
                receive_maximum=64,
                topic_alias_maximum=16,
                maximum_qos=1,
                retain_available=0,
                user_properties=(("k", "v"),),
                maximum_packet_size_bytes=1 << 20,
                wildcard_subscription_available=1,
                subscription_identifier_available=1,
                shared_subscription_available=0,
            )
        ),
    ),
)

PUBLISHES: Final = (
    _case(
        "publish 3.1.1 qos 0",
        4,
        frame(0x30, text("a/b"), b"hi"),
        Publish("a/b", b"hi"),
        "[MQTT3-3.3.2-1] [MQTT3-2.3.1-5]",
    ),
    _case("publish 3.1 qos 1", 3, frame(0x32, text("a"), _ID, b"hi"), Publish("a", b"hi", 1, packet_id=_PACKET_ID)),
    _case("publish 3.1.1 empty payload", 4, frame(0x31, text("a")), Publish("a", b"", 0, True)),
    _case(
        "publish 3.1.1 qos 2 again",
        4,
        frame(0x3C, text("a"), _ID, b"hi"),
        Publish("a", b"hi", 2, is_duplicate=True, packet_id=_PACKET_ID),
    ),
    _case(
        "publish 5.0 qos 0",
        5,
        frame(0x30, text("a/b"), b"\x00hi"),
        Publish("a/b", b"hi"),
        "[MQTT-2.2.2-1] [MQTT-2.2.1-2]",
    ),
    _case(
        "publish 5.0 everything",
        5,
        frame(
            0x35,
            text("a/b"),
            _ID,
            props(
                b"\x01\x00",
                b"\x02\x00\x00\x00\x01",
                b"\x03" + text("json"),
                b"\x08" + text("r"),
                b"\x09" + text(b""),
                b"\x23\x00\x01",
                b"\x26" + text("b") + text("2"),
                b"\x26" + text("a") + text("1"),
            ),
            b"hi",
        ),
        Publish(
            "a/b",
            b"hi",
            2,
            True,
            False,
            _PACKET_ID,
            Properties(
                payload_format_indicator=0,
                message_expiry_interval_s=1,
                content_type="json",
                response_topic="r",
                correlation_data=b"",
                topic_alias=1,
                user_properties=(("b", "2"), ("a", "1")),
            ),
        ),
        "[MQTT-3.3.2-1] [MQTT-3.3.2-18]",
    ),
    _case(
        "publish 5.0 by alias",
        5,
        frame(0x30, text(""), props(b"\x23\x00\x02"), b"hi"),
        Publish("", b"hi", properties=Properties(topic_alias=2)),
    ),
    _case(
        "publish 3.1.1 of 128 bytes has a two byte length",
        4,
        frame(0x30, text("a"), b"x" * 125),
        Publish("a", b"x" * 125),
    ),
    _case(
        "publish 3.1.1 of 16384 bytes has a three byte length",
        4,
        frame(0x30, text("a"), b"x" * 16381),
        Publish("a", b"x" * 16381),
    ),
    _case(
        "publish 3.1.1 with a longer Remaining Length than needed",
        4,
        b"\x30\x83\x80\x00" + text("a"),
        Publish("a"),
    ),
)

ACKNOWLEDGEMENTS: Final = tuple(
    case
    for first_byte, kind in ((0x40, Puback), (0x50, Pubrec), (0x62, Pubrel), (0x70, Pubcomp))
    for failure in (0x92 if kind in (Pubrel, Pubcomp) else 0x97,)
    for word in (kind.__name__.lower(),)
    for case in (
        _case(f"{word} 3.1.1", 4, frame(first_byte, _ID), kind(_PACKET_ID)),
        _case(f"{word} 5.0 short", 5, frame(first_byte, _ID), kind(_PACKET_ID)),
        _case(f"{word} 5.0 with a code", 5, frame(first_byte, _ID, bytes((failure,))), kind(_PACKET_ID, failure)),
        _case(
            f"{word} 5.0 success with code and empty properties",
            5,
            frame(first_byte, _ID, b"\x00\x00"),
            kind(_PACKET_ID),
        ),
        _case(
            f"{word} 5.0 with properties",
            5,
            frame(first_byte, _ID, bytes((failure,)), props(b"\x1f" + text("no"), b"\x26" + text("k") + text(""))),
            kind(_PACKET_ID, failure, Properties(reason_string="no", user_properties=(("k", ""),))),
        ),
    )
)

SUBSCRIPTIONS: Final = (
    _case("pubrel 3.1 again", 3, frame(0x6A, _ID), Pubrel(_PACKET_ID)),
    _case(
        "subscribe 3.1 again",
        3,
        frame(0x8A, _ID, text("a"), b"\x01"),
        Subscribe(_PACKET_ID, (Subscription("a", 1),)),
    ),
    _case(
        "subscribe 3.1.1",
        4,
        frame(0x82, _ID, text("a/+"), b"\x00", text("#"), b"\x02"),
        Subscribe(_PACKET_ID, (Subscription("a/+", 0), Subscription("#", 2))),
        "[MQTT3-3.8.3-1]",
    ),
    _case(
        "subscribe 5.0",
        5,
        frame(0x82, _ID, b"\x00", text("a"), b"\x01"),
        Subscribe(_PACKET_ID, (Subscription("a", 1),)),
    ),
    _case(
        "subscribe 5.0 everything",
        5,
        frame(
            0x82,
            _ID,
            props(b"\x0b\x80\x01", b"\x26" + text("k") + text("v")),
            text("a"),
            b"\x2e",
            text("$share/g/b"),
            b"\x19",
        ),
        Subscribe(
            _PACKET_ID,
            (Subscription("a", 2, True, True, 2), Subscription("$share/g/b", 1, False, True, 1)),
            Properties(subscription_identifiers=(128,), user_properties=(("k", "v"),)),
        ),
        "[MQTT-3.8.3-1]",
    ),
    _case(
        "unsubscribe 3.1.1",
        4,
        frame(0xA2, _ID, text("a"), text("b/#")),
        Unsubscribe(_PACKET_ID, ("a", "b/#")),
        "[MQTT3-3.10.3-1]",
    ),
    _case(
        "unsubscribe 5.0",
        5,
        frame(0xA2, _ID, props(b"\x26" + text("k") + text("v")), text("a")),
        Unsubscribe(_PACKET_ID, ("a",), Properties(user_properties=(("k", "v"),))),
        "[MQTT-3.10.3-1]",
    ),
    _answer(
        "suback 3.1.1", 4, frame(0x90, _ID, b"\x00\x01\x02\x80"), Suback(_PACKET_ID, (0, 1, 2, 0x80)), "[MQTT3-3.9.3-1]"
    ),
    _answer("suback 5.0", 5, frame(0x90, _ID, b"\x00\x02\x87"), Suback(_PACKET_ID, (2, 0x87)), "[MQTT-3.9.3-1]"),
    _answer("unsuback 3.1.1", 4, frame(0xB0, _ID), Unsuback(_PACKET_ID)),
    _answer("unsuback 5.0", 5, frame(0xB0, _ID, b"\x00\x00\x11"), Unsuback(_PACKET_ID, (0, 0x11)), "[MQTT-3.11.3-1]"),
)

OTHERS: Final = (
    _case("pingreq 3.1", 3, b"\xc0\x00", Pingreq()),
    _case("pingreq 5.0", 5, b"\xc0\x00", Pingreq()),
    _case("disconnect 3.1.1", 4, b"\xe0\x00", Disconnect()),
    _case("disconnect 5.0 normal", 5, b"\xe0\x00", Disconnect()),
    _case("disconnect 5.0 code alone", 5, b"\xe0\x01\x04", Disconnect(4)),
    _case(
        "disconnect 5.0 with will and expiry",
        5,
        frame(0xE0, b"\x04", props(b"\x11\x00\x00\x00\x05")),
        Disconnect(4, Properties(session_expiry_interval_s=5)),
    ),
    _case(
        "auth 5.0 from the client",
        5,
        frame(0xF0, b"\x18", props(b"\x15" + text("SCRAM"), b"\x16" + text(b"\x01"))),
        Auth(0x18, Properties(authentication_method="SCRAM", authentication_data=b"\x01")),
        "[MQTT-3.15.2-1]",
    ),
    _answer("auth 5.0 success in short", 5, b"\xf0\x00", Auth()),
)

ACCEPTED: Final[tuple[PacketCase, ...]] = CONNECTS + CONNACKS + PUBLISHES + ACKNOWLEDGEMENTS + SUBSCRIPTIONS + OTHERS
