"""CONNECT packets that every parser must accept, in all three versions, as bytes beside the packet they mean.

Knows no parser and no account.
"""

from __future__ import annotations

from typing import Final

from iothub.mqtt.packets import Connect, Packet, Will
from iothub.mqtt.properties import Properties
from iothub.testing.wire_bytes import PacketCase, connect, props, text


def _case(name: str, version: int, data: bytes, expected: Packet, proves: str = "") -> PacketCase:
    return PacketCase(name, version, data, expected, proves)


CONNECTS: Final = (
    _case("connect 3.1", 0, connect(3, 2, text("c1")), Connect("c1", 3, True, 60)),
    _case("connect 3.1.1", 0, connect(4, 2, text("c1")), Connect("c1", 4, True, 60)),
    _case("connect 5.0", 0, connect(5, 2, text("c1")), Connect("c1", 5, True, 60)),
    _case("connect 3.1.1 resumes", 0, connect(4, 0, text("c1")), Connect("c1", 4, False, 60)),
    _case("connect 3.1.1 empty client id", 0, connect(4, 2, text("")), Connect("", 4, True, 60), "[MQTT3-3.1.3-6]"),
    _case("connect 5.0 empty client id, no clean start", 0, connect(5, 0, text("")), Connect("", 5, False, 60)),
    _case("connect 3.1 client id of 40 bytes", 0, connect(3, 2, text("x" * 40)), Connect("x" * 40, 3, True, 60)),
    _case(
        "connect 3.1.1 everything",
        0,
        connect(4, 0xF6, text("c1"), text("w/t"), text(b"\x00\xff"), text("acme/dev1"), text(b"se\x00cret")),
        Connect("c1", 4, True, 60, Will("w/t", b"\x00\xff", 2, True), "acme/dev1", b"se\x00cret"),
        "[MQTT3-3.1.3-1] [MQTT3-3.1.2-9] [MQTT3-3.1.2-19] [MQTT3-3.1.2-21]",
    ),
    _case(
        "connect 5.0 everything",
        0,
        connect(
            5,
            0xEC,
            text("c1"),
            props(
                b"\x01\x01",
                b"\x02\x00\x00\x00\x0a",
                b"\x03" + text("text/plain"),
                b"\x08" + text("reply"),
                b"\x09" + text(b"\x07"),
                b"\x18\x00\x00\x00\x05",
                b"\x26" + text("k") + text("v"),
            ),
            text("w/t"),
            text("gone"),
            text("acme/dev1"),
            text(b"secret"),
            properties=props(
                b"\x11\x00\x00\x0e\x10",
                b"\x15" + text("SCRAM"),
                b"\x16" + text(b"\x01\x02"),
                b"\x17\x00",
                b"\x19\x01",
                b"\x21\x00\x14",
                b"\x22\x00\x0a",
                b"\x26" + text("a") + text("1"),
                b"\x26" + text("a") + text("2"),
                b"\x27\x00\x00\x10\x00",
            ),
        ),
        Connect(
            "c1",
            5,
            False,
            60,
            Will(
                "w/t",
                b"gone",
                1,
                True,
                Properties(
                    payload_format_indicator=1,
                    message_expiry_interval_s=10,
                    content_type="text/plain",
                    response_topic="reply",
                    correlation_data=b"\x07",
                    will_delay_interval_s=5,
                    user_properties=(("k", "v"),),
                ),
            ),
            "acme/dev1",
            b"secret",
            Properties(
                session_expiry_interval_s=3600,
                authentication_method="SCRAM",
                authentication_data=b"\x01\x02",
                request_problem_information=0,
                request_response_information=1,
                receive_maximum=20,
                topic_alias_maximum=10,
                user_properties=(("a", "1"), ("a", "2")),
                maximum_packet_size_bytes=4096,
            ),
        ),
        "[MQTT-3.1.3-1] [MQTT-3.1.2-9] [MQTT-3.1.2-17] [MQTT-3.1.2-19] [MQTT-3.1.3-10]",
    ),
    _case(
        "connect 5.0 password alone",
        0,
        connect(5, 0x42, text("c1"), text(b"token")),
        Connect("c1", 5, True, 60, password=b"token"),
        "[MQTT-3.1.2-16] [MQTT-3.1.2-19]",
    ),
    _case(
        "connect 3.1.1 empty will payload and empty user name",
        0,
        connect(4, 0x86, text("c1"), text("w"), text(""), text("")),
        Connect("c1", 4, True, 60, Will("w", b""), ""),
    ),
    _case(
        "connect 3.1 user name and password flags without the fields",
        0,
        connect(3, 0xC2, text("c1")),
        Connect("c1", 3, True, 60),
    ),
    _case(
        "connect 3.1 will details without a will are disregarded",
        0,
        connect(3, 0x3B, text("c1")),
        Connect("c1", 3, True, 60),
    ),
    _case(
        "connect 3.1.1 with a longer Remaining Length than needed",
        0,
        b"\x10\x8e\x00" + connect(4, 2, text("c1"))[2:],
        Connect("c1", 4, True, 60),
    ),
    _case(
        "connect 5.0 byte order mark and non-characters stay",
        0,
        connect(5, 2, text("\ufeffc\uffff\x01")),
        Connect("\ufeffc\uffff\x01", 5, True, 60),
        "[MQTT-1.5.4-3] [MQTT3-1.5.3-3]",
    ),
)
