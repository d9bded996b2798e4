"""Packets that every parser must refuse, as bytes beside the Reason it must give.

Knows no parser. The standard limits hold (`iothub.mqtt.constants.Limits`); the packet limit is the caller's.
"""

from __future__ import annotations

from typing import Final

from iothub.base.reasons import Reason
from iothub.testing.wire_bytes import PacketCase, connect, frame, props, text, u16

_ID: Final = u16(0x1234)
_USER: Final = b"\x26" + text("k") + text("v")
_M, _P = Reason.MALFORMED, Reason.PROTOCOL_ERROR


def _case(name: str, version: int, data: bytes, reason: Reason, proves: str = "") -> PacketCase:
    return PacketCase(name, version, data, reason, proves)


def _connect_5(properties: bytes) -> bytes:
    return connect(5, 2, text("c"), properties=props(properties))


def _publish_5(*properties: bytes) -> bytes:
    return frame(0x30, text("a"), props(*properties))


FIXED_HEADERS: Final = (
    _case("first packet is not connect", 0, frame(0x30, text("a")), _P, "[MQTT-3.1.0-1] [MQTT3-3.1.0-1]"),
    _case("first packet is http", 0, b"GET / HTTP/1.1\r\n\r\n", _P, "[MQTT-3.1.0-1] [MQTT3-3.1.0-1]"),
    _case("first packet is tls", 0, b"\x16\x03\x01\x02\x00\x01\x00", _M),
    _case("first packet of type 0", 0, b"\x00\x00", _M),
    _case(
        "connect with flags",
        0,
        b"\x11" + connect(4, 2, text("c"))[1:],
        _M,
        "[MQTT-2.1.3-1] [MQTT3-2.2.2-1] [MQTT3-2.2.2-2]",
    ),
    _case("type 0", 5, b"\x00\x00", _M),
    _case("auth in 3.1.1", 4, b"\xf0\x00", _M),
    _case("puback with flags", 4, frame(0x42, _ID), _M, "[MQTT3-2.2.2-2]"),
    _case("pingreq with flags", 5, b"\xc1\x00", _M, "[MQTT-2.1.3-1]"),
    _case("pubrel with flags 0000", 4, frame(0x60, _ID), _M, "[MQTT3-3.6.1-1]"),
    _case("pubrel 5.0 with flags 1010", 5, frame(0x6A, _ID), _M, "[MQTT-3.6.1-1]"),
    _case("subscribe with flags 0000", 4, frame(0x80, _ID, text("a"), b"\x00"), _M, "[MQTT3-3.8.1-1]"),
    _case("subscribe 5.0 with flags 0011", 5, frame(0x83, _ID, b"\x00", text("a"), b"\x00"), _M, "[MQTT-3.8.1-1]"),
    _case("unsubscribe with flags 0000", 4, frame(0xA0, _ID, text("a")), _M, "[MQTT3-3.10.1-1]"),
    _case("unsubscribe 5.0 with flags 1010", 5, frame(0xAA, _ID, b"\x00", text("a")), _M, "[MQTT-3.10.1-1]"),
    _case("disconnect with flags", 4, b"\xe1\x00", _M, "[MQTT3-3.14.1-1]"),
    _case("disconnect 5.0 with flags", 5, b"\xe8\x00", _M, "[MQTT-3.14.1-1]"),
    _case("auth with flags", 5, frame(0xF1, b"\x18", props(b"\x15" + text("S"))), _M, "[MQTT-3.15.1-1]"),
    _case("publish with qos 3", 4, frame(0x36, text("a"), _ID), _M, "[MQTT-3.3.1-4] [MQTT3-3.3.1-4]"),
    _case("publish qos 0 with dup", 5, frame(0x38, text("a"), b"\x00"), _M, "[MQTT-3.3.1-2] [MQTT3-3.3.1-2]"),
    _case("connack from a client", 4, frame(0x20, b"\x00\x00"), _P),
    _case("connack from a client with flags", 4, frame(0x2F, b"\x00\x00"), _P),
    _case("suback from a client", 5, frame(0x90, _ID, b"\x00\x00"), _P),
    _case("unsuback from a client", 4, frame(0xB0, _ID), _P),
    _case("pingresp from a client", 4, b"\xd0\x00", _P),
)

CONNECTS: Final = (
    _case("connect empty", 0, frame(0x10), _M, "[MQTT-3.1.4-1] [MQTT3-3.1.4-1]"),
    _case(
        "connect other protocol name", 0, connect(4, 2, text("c"), name="MQTTX"), _P, "[MQTT-3.1.2-1] [MQTT3-3.1.2-1]"
    ),
    _case("connect name in small letters", 0, connect(4, 2, text("c"), name="mqtt"), _P, "[MQTT-3.1.2-1]"),
    _case("connect level 6", 0, connect(6, 2, text("c")), Reason.UNSUPPORTED_VERSION, "[MQTT-3.1.2-2] [MQTT3-3.1.2-2]"),
    _case("connect level 0", 0, connect(0, 2, text("c")), Reason.UNSUPPORTED_VERSION, "[MQTT3-3.1.2-2]"),
    _case("connect MQTT level 3", 0, connect(3, 2, text("c"), name="MQTT"), Reason.UNSUPPORTED_VERSION),
    _case("connect MQIsdp level 4", 0, connect(4, 2, text("c"), name="MQIsdp"), Reason.UNSUPPORTED_VERSION),
    _case("connect private bridge", 0, connect(0x84, 2, text("c")), Reason.UNSUPPORTED_VERSION, "[MQTT3-3.1.2-2]"),
    _case("connect without level", 0, frame(0x10, text("MQTT")), _M),
    _case("connect reserved flag 3.1.1", 0, connect(4, 3, text("c")), _M, "[MQTT3-3.1.2-3]"),
    _case("connect reserved flag 5.0", 0, connect(5, 3, text("c")), _M, "[MQTT-3.1.2-3]"),
    _case(
        "connect will qos 3",
        0,
        connect(4, 0x1E, text("c"), text("w"), text("")),
        _M,
        "[MQTT-3.1.2-12] [MQTT3-3.1.2-14]",
    ),
    _case(
        "connect will qos without will 3.1.1", 0, connect(4, 0x0A, text("c")), _M, "[MQTT3-3.1.2-11] [MQTT3-3.1.2-13]"
    ),
    _case("connect will qos without will 5.0", 0, connect(5, 0x0A, text("c")), _M, "[MQTT-3.1.2-11]"),
    _case("connect will retain without will 3.1.1", 0, connect(4, 0x22, text("c")), _M, "[MQTT3-3.1.2-15]"),
    _case("connect will retain without will 5.0", 0, connect(5, 0x22, text("c")), _M, "[MQTT-3.1.2-13]"),
    _case("connect will missing 3.1.1", 0, connect(4, 6, text("c")), _M, "[MQTT3-3.1.2-9]"),
    _case("connect will missing 5.0", 0, connect(5, 6, text("c")), _M, "[MQTT-3.1.2-9]"),
    _case("connect will payload missing", 0, connect(5, 6, text("c"), b"\x00", text("w")), _M, "[MQTT-3.1.2-9]"),
    _case("connect without client id 3.1.1", 0, connect(4, 2), _M, "[MQTT3-3.1.3-3]"),
    _case("connect without client id 5.0", 0, connect(5, 2), _M, "[MQTT-3.1.3-3]"),
    _case("connect user name missing 3.1.1", 0, connect(4, 0x82, text("c")), _M, "[MQTT3-3.1.2-19]"),
    _case("connect user name missing 5.0", 0, connect(5, 0x82, text("c")), _M, "[MQTT-3.1.2-17]"),
    _case("connect password missing 3.1.1", 0, connect(4, 0xC2, text("c"), text("u")), _M, "[MQTT3-3.1.2-21]"),
    _case("connect password missing 5.0", 0, connect(5, 0x42, text("c")), _M, "[MQTT-3.1.2-19]"),
    _case("connect user name without flag 3.1.1", 0, connect(4, 2, text("c"), text("u")), _M, "[MQTT3-3.1.2-18]"),
    _case("connect user name without flag 5.0", 0, connect(5, 2, text("c"), text("u")), _M, "[MQTT-3.1.2-16]"),
    _case(
        "connect password without flag 3.1.1",
        0,
        connect(4, 0x82, text("c"), text("u"), text("p")),
        _M,
        "[MQTT3-3.1.2-20]",
    ),
    _case(
        "connect password without flag 5.0", 0, connect(5, 0x82, text("c"), text("u"), text("p")), _M, "[MQTT-3.1.2-18]"
    ),
    _case(
        "connect password without user name 3.1.1", 0, connect(4, 0x42, text("c"), text("p")), _M, "[MQTT3-3.1.2-22]"
    ),
    _case("connect password without user name 3.1", 0, connect(3, 0x42, text("c"), text("p")), _M),
    _case("connect client id not utf-8 3.1.1", 0, connect(4, 2, text(b"\xff")), _M, "[MQTT3-3.1.3-4] [MQTT3-1.5.3-1]"),
    _case(
        "connect client id a surrogate", 0, connect(5, 2, text(b"\xed\xa0\x80")), _M, "[MQTT-3.1.3-4] [MQTT-1.5.4-1]"
    ),
    _case("connect client id overlong", 0, connect(5, 2, text(b"\xc0\x80")), _M, "[MQTT-1.5.4-1]"),
    _case("connect client id with U+0000", 0, connect(5, 2, text("a\0b")), _M, "[MQTT-1.5.4-2] [MQTT3-1.5.3-2]"),
    _case(
        "connect will topic not utf-8 3.1.1",
        0,
        connect(4, 6, text("c"), text(b"\x80"), text("")),
        _M,
        "[MQTT3-3.1.3-10]",
    ),
    _case(
        "connect will topic not utf-8 5.0",
        0,
        connect(5, 6, text("c"), b"\x00", text(b"\x80"), text("")),
        _M,
        "[MQTT-3.1.3-11]",
    ),
    _case("connect user name not utf-8 3.1.1", 0, connect(4, 0x82, text("c"), text(b"\xc3")), _M, "[MQTT3-3.1.3-11]"),
    _case("connect user name not utf-8 5.0", 0, connect(5, 0x82, text("c"), text(b"\xc3")), _M, "[MQTT-3.1.3-12]"),
    _case("connect client id beyond the end", 0, connect(4, 2, b"\x00\x09abc"), _M),
    _case(
        "connect client id too long",
        0,
        connect(5, 2, text("x" * 257)),
        Reason.CLIENT_ID_INVALID,
        "[MQTT-3.1.3-8] [MQTT3-3.1.3-9]",
    ),
    _case("connect 3.1 empty client id", 0, connect(3, 2, text("")), Reason.CLIENT_ID_INVALID),
    _case(
        "connect 3.1.1 empty client id, no clean session",
        0,
        connect(4, 0, text("")),
        Reason.CLIENT_ID_INVALID,
        "[MQTT3-3.1.3-7] [MQTT3-3.1.3-8]",
    ),
    _case(
        "connect will topic wildcard",
        0,
        connect(4, 6, text("c"), text("a/#"), text("")),
        Reason.TOPIC_NAME_INVALID,
        "[MQTT3-4.7.1-1]",
    ),
    _case(
        "connect will topic empty",
        0,
        connect(5, 6, text("c"), b"\x00", text(""), text("")),
        Reason.TOPIC_NAME_INVALID,
        "[MQTT-4.7.3-1]",
    ),
)

PROPERTIES: Final = (
    _case("property unknown", 5, _publish_5(b"\x7e\x00"), _M),
    _case("property identifier of two bytes", 5, _publish_5(b"\x80\x01\x00"), _M),
    _case("property identifier in a longer form", 5, _publish_5(b"\x81\x00\x00"), _M, "[MQTT-1.5.5-1]"),
    _case("property of another packet", 5, _publish_5(b"\x21\x00\x01"), _M),
    _case("property of a will in connect", 0, _connect_5(b"\x18\x00\x00\x00\x01"), _M),
    _case("property length beyond the end", 5, frame(0x30, text("a"), b"\x05\x01\x00"), _M),
    _case("property length of five bytes", 5, frame(0x30, text("a"), b"\x80\x80\x80\x80\x01"), _M),
    _case("property length in a longer form", 5, frame(0x30, text("a"), b"\x82\x00\x01\x00"), _M, "[MQTT-1.5.5-1]"),
    _case("property length missing", 5, frame(0x30, text("a")), _M, "[MQTT-2.2.2-1]"),
    _case("property value beyond its block", 5, frame(0x30, text("a"), b"\x03\x02\x00\x00\x00\x00"), _M),
    _case("property string not utf-8", 5, _publish_5(b"\x03" + text(b"\xff")), _M, "[MQTT-3.3.2-19]"),
    _case("response topic not utf-8", 5, _publish_5(b"\x08" + text(b"\xff")), _M, "[MQTT-3.3.2-13]"),
    _case("response topic wildcard", 5, _publish_5(b"\x08" + text("a/+")), _P, "[MQTT-3.3.2-14]"),
    _case("response topic empty", 5, _publish_5(b"\x08" + text("")), _P, "[MQTT-4.7.3-1]"),
    _case(
        "response topic of a will empty",
        0,
        connect(5, 6, text("c"), props(b"\x08" + text("")), text("w"), text("")),
        _P,
        "[MQTT-4.7.3-1]",
    ),
    _case("user property name not utf-8", 5, _publish_5(b"\x26" + text(b"\xff") + text("")), _M, "[MQTT-1.5.7-1]"),
    _case("user property value with U+0000", 5, _publish_5(b"\x26" + text("") + text("\0")), _M, "[MQTT-1.5.7-1]"),
    _case("user properties over the limit", 5, _publish_5(*(_USER,) * 129), Reason.QUOTA),
    _case("content type twice", 5, _publish_5(*(b"\x03" + text("a"),) * 2), _P),
    _case("topic alias twice", 5, _publish_5(b"\x23\x00\x01", b"\x23\x00\x01"), _P),
    _case("topic alias 0", 5, _publish_5(b"\x23\x00\x00"), Reason.TOPIC_ALIAS_INVALID, "[MQTT-3.3.2-8]"),
    _case("payload format indicator 2", 5, _publish_5(b"\x01\x02"), _P),
    _case("subscription identifier from a client", 5, _publish_5(b"\x0b\x01"), _P, "[MQTT-3.3.4-6]"),
    _case("receive maximum 0", 0, _connect_5(b"\x21\x00\x00"), _P),
    _case("receive maximum twice", 0, _connect_5(b"\x21\x00\x01\x21\x00\x01"), _P),
    _case("maximum packet size 0", 0, _connect_5(b"\x27\x00\x00\x00\x00"), _P),
    _case("request problem information 2", 0, _connect_5(b"\x17\x02"), _P),
    _case("request response information 2", 0, _connect_5(b"\x19\x02"), _P),
    _case("authentication data without method", 0, _connect_5(b"\x16" + text(b"x")), _P),
    _case("authentication method twice", 0, _connect_5((b"\x15" + text("S")) * 2), _P),
    _case("will delay twice", 0, connect(5, 6, text("c"), props(b"\x18\0\0\0\1" * 2), text("w"), text("")), _P),
)

BODIES: Final = (
    _case("publish qos 1 with packet id 0", 4, frame(0x32, text("a"), u16(0)), _P, "[MQTT-2.2.1-3] [MQTT3-2.3.1-1]"),
    _case("publish qos 1 without packet id", 4, frame(0x32, text("a")), _M),
    _case("publish without topic", 4, frame(0x30), _M, "[MQTT-3.3.2-1] [MQTT3-3.3.2-1]"),
    _case("publish topic not utf-8", 4, frame(0x30, text(b"\xfe")), _M, "[MQTT3-3.3.2-1]"),
    _case("publish topic with U+0000", 5, frame(0x30, text("a\0"), b"\0"), _M, "[MQTT-4.7.3-2] [MQTT3-4.7.3-2]"),
    _case("publish empty topic 3.1.1", 4, frame(0x30, text("")), Reason.TOPIC_NAME_INVALID, "[MQTT3-4.7.3-1]"),
    _case("publish empty topic without alias", 5, frame(0x30, text(""), b"\0"), _P, "[MQTT-4.7.3-1]"),
    _case(
        "publish wildcard 3.1.1",
        4,
        frame(0x30, text("a/+/b")),
        Reason.TOPIC_NAME_INVALID,
        "[MQTT3-3.3.2-2] [MQTT3-4.7.1-1]",
    ),
    _case(
        "publish wildcard 5.0",
        5,
        frame(0x30, text("#"), b"\0"),
        Reason.TOPIC_NAME_INVALID,
        "[MQTT-3.3.2-2] [MQTT-4.7.0-1]",
    ),
    _case("puback with packet id 0", 4, frame(0x40, u16(0)), _P),
    _case("puback of one byte", 4, frame(0x40, b"\x01"), _M),
    _case("puback 3.1.1 with a code", 4, frame(0x40, _ID, b"\x00"), _M),
    _case("puback 5.0 with a code of others", 5, frame(0x40, _ID, b"\x92"), _P, "[MQTT-3.4.2-1]"),
    _case("pubrec 5.0 with a code of others", 5, frame(0x50, _ID, b"\x01"), _P, "[MQTT-3.5.2-1]"),
    _case("pubrel 5.0 with a code of others", 5, frame(0x62, _ID, b"\x10"), _P, "[MQTT-3.6.2-1]"),
    _case("pubcomp 5.0 with a code of others", 5, frame(0x70, _ID, b"\x97"), _P, "[MQTT-3.7.2-1]"),
    _case("puback 5.0 with rest", 5, frame(0x40, _ID, b"\x00\x00\x00"), _M),
    _case("subscribe with packet id 0", 4, frame(0x82, u16(0), text("a"), b"\0"), _P, "[MQTT3-2.3.1-1]"),
    _case("subscribe without filters 3.1.1", 4, frame(0x82, _ID), _P, "[MQTT3-3.8.3-3]"),
    _case("subscribe without filters 5.0", 5, frame(0x82, _ID, b"\0"), _P, "[MQTT-3.8.3-2]"),
    _case("subscribe filter not utf-8 3.1.1", 4, frame(0x82, _ID, text(b"\xff"), b"\0"), _M, "[MQTT3-3.8.3-1]"),
    _case("subscribe filter not utf-8 5.0", 5, frame(0x82, _ID, b"\0", text(b"\xff"), b"\0"), _M, "[MQTT-3.8.3-1]"),
    _case("subscribe without qos", 4, frame(0x82, _ID, text("a")), _M),
    _case("subscribe 3.1.1 qos 3", 4, frame(0x82, _ID, text("a"), b"\x03"), _M, "[MQTT3-3.8.3-4]"),
    _case("subscribe 3.1.1 reserved bits", 4, frame(0x82, _ID, text("a"), b"\x04"), _M, "[MQTT3-3.8.3-4]"),
    _case("subscribe 5.0 qos 3", 5, frame(0x82, _ID, b"\0", text("a"), b"\x03"), _P),
    _case("subscribe 5.0 retain handling 3", 5, frame(0x82, _ID, b"\0", text("a"), b"\x30"), _P),
    _case("subscribe 5.0 reserved bits", 5, frame(0x82, _ID, b"\0", text("a"), b"\x40"), _M, "[MQTT-3.8.3-5]"),
    _case(
        "subscribe 5.0 no local on shared",
        5,
        frame(0x82, _ID, b"\0", text("$share/g/a"), b"\x04"),
        _P,
        "[MQTT-3.8.3-4]",
    ),
    _case("subscribe identifier 0", 5, frame(0x82, _ID, props(b"\x0b\x00"), text("a"), b"\0"), _P),
    _case("subscribe identifier twice", 5, frame(0x82, _ID, props(b"\x0b\x01\x0b\x02"), text("a"), b"\0"), _P),
    _case("subscribe with too many filters", 4, frame(0x82, _ID, *(text("a") + b"\0",) * 101), Reason.QUOTA),
    _case("unsubscribe without filters 3.1.1", 4, frame(0xA2, _ID), _P, "[MQTT3-3.10.3-2]"),
    _case("unsubscribe without filters 5.0", 5, frame(0xA2, _ID, b"\0"), _P, "[MQTT-3.10.3-2]"),
    _case("unsubscribe filter not utf-8 3.1.1", 4, frame(0xA2, _ID, text(b"\xff")), _M, "[MQTT3-3.10.3-1]"),
    _case("unsubscribe filter not utf-8 5.0", 5, frame(0xA2, _ID, b"\0", text(b"\xff")), _M, "[MQTT-3.10.3-1]"),
    _case("unsubscribe with too many filters", 4, frame(0xA2, _ID, *(text("a"),) * 101), Reason.QUOTA),
    _case("pingreq with a body", 4, frame(0xC0, b"\0"), _M),
    _case("disconnect 3.1.1 with a body", 4, frame(0xE0, b"\0"), _M),
    _case("disconnect with a server's code", 5, frame(0xE0, b"\x8b"), _P, "[MQTT-3.14.2-1]"),
    _case("disconnect with an unknown code", 5, frame(0xE0, b"\x03"), _P, "[MQTT-3.14.2-1]"),
    _case("disconnect with a server reference", 5, frame(0xE0, b"\x00", props(b"\x1c" + text("x"))), _P),
    _case("auth empty", 5, b"\xf0\x00", _P, "[MQTT-3.15.2-1]"),
    _case("auth with a server's code", 5, frame(0xF0, b"\x00", props(b"\x15" + text("S"))), _P, "[MQTT-3.15.2-1]"),
    _case("auth without a method", 5, frame(0xF0, b"\x18\x00"), _P),
    _case("auth with a code alone", 5, frame(0xF0, b"\x19"), _P),
)

REFUSED: Final[tuple[PacketCase, ...]] = FIXED_HEADERS + CONNECTS + PROPERTIES + BODIES
