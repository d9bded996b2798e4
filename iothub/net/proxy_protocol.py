"""The PROXY protocol, versions 1 and 2: a trusted proxy says in front of everything else who the client is. Strict and bounded.

Knows no rules about whom to trust: only listeners with trusted proxies have this filter, and only those proxies get in.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Address, IPv6Address

from iothub.base.reasons import Reason
from iothub.net.cidr import plain_ip
from iothub.net.filters import ClientFacts, FilterClosed

V1_PREFIX = b"PROXY "
V1_MAX_BYTES = 107  # with CRLF, by the protocol's own account
V2_SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"
V2_MAX_BYTES = 4096  # header and TLVs; real ones stay under 536
SUBJECT_MAX_BYTES = 256

TYPE_SSL = 0x20
SUBTYPE_SSL_CN = 0x22
CLIENT_SSL = 0x01
CLIENT_CERT = 0x02 | 0x04  # on this connection, or earlier in this TLS session


@dataclass(frozen=True, slots=True)
class ProxyHeader:
    """What a header says. `ip` is None when the proxy speaks for itself (LOCAL, UNKNOWN, UNSPEC). `subject`: "=" and a common name."""

    size_bytes: int
    ip: str | None = None
    port: int = 0
    subject: str | None = None


class ProxyFilter:
    """Takes the header off the front of the stream; afterwards bytes pass untouched."""

    __slots__ = ("_client", "_head", "is_open", "replies")

    def __init__(self, client: ClientFacts) -> None:
        self.is_open = False
        self.replies = bytearray()
        self._client = client
        self._head = b""

    def receive(self, data: bytes) -> bytes:
        if self.is_open:
            return data
        data = self._head + data
        header = parse_header(data)
        if header is None:
            self._head = data
            return b""
        self._head = b""
        self.is_open = True
        if header.ip is not None:
            self._client.ip = plain_ip(header.ip)
            self._client.port = header.port
            self._client.subject = header.subject
        return data[header.size_bytes :]

    def send(self, data: bytes) -> bytes:
        return data

    def final_bytes(self) -> bytes:
        return b""


def parse_header(data: bytes) -> ProxyHeader | None:
    """Read a header of either version; None: more bytes are needed (never more than 4096 in all).

    Raises:
        FilterClosed: this is no header, or a malformed one.
    """
    if data.startswith(V1_PREFIX):
        return _parse_v1(data)
    if data.startswith(V2_SIGNATURE):
        return _parse_v2(data)
    if V1_PREFIX.startswith(data) or V2_SIGNATURE.startswith(data):
        return None
    raise _refusal("no PROXY header where one is required")


def _parse_v1(data: bytes) -> ProxyHeader | None:
    end = data.find(b"\r\n", 0, V1_MAX_BYTES)
    if end < 0:
        if len(data) >= V1_MAX_BYTES:
            raise _refusal("PROXY v1 line too long")
        return None
    fields = data[:end].split(b" ")
    size = end + 2
    if fields[1] == b"UNKNOWN":
        return ProxyHeader(size)
    if len(fields) != 6 or fields[1] not in {b"TCP4", b"TCP6"}:
        raise _refusal("malformed PROXY v1 line")
    is_ipv4 = fields[1] == b"TCP4"
    source = _v1_address(fields[2], is_ipv4=is_ipv4)
    _v1_address(fields[3], is_ipv4=is_ipv4)
    port = _v1_port(fields[4])
    _v1_port(fields[5])
    return ProxyHeader(size, source, port)


def _v1_address(field: bytes, *, is_ipv4: bool) -> str:
    try:
        text = field.decode("ascii")
        return str(IPv4Address(text)) if is_ipv4 else _ipv6(IPv6Address(text))
    except (UnicodeDecodeError, AddressValueError):
        raise _refusal("malformed address in PROXY v1 line") from None


def _v1_port(field: bytes) -> int:
    if not field.isdigit() or len(field) > 5 or (len(field) > 1 and field.startswith(b"0")) or int(field) > 65_535:
        raise _refusal("malformed port in PROXY v1 line")
    return int(field)


def _parse_v2(data: bytes) -> ProxyHeader | None:
    if len(data) < 16:
        return None
    version_command, family, length = data[12], data[13], int.from_bytes(data[14:16], "big")
    size = 16 + length
    if version_command not in {0x20, 0x21}:
        raise _refusal("unknown version or command in PROXY v2 header")
    if size > V2_MAX_BYTES:
        raise _refusal("PROXY v2 header too long")
    if len(data) < size:
        return None
    if version_command == 0x20 or family in {
        0x00,
        0x31,
        0x32,
    }:  # LOCAL; UNSPEC and Unix sockets carry no address of use
        return ProxyHeader(size)
    body = data[16:size]
    if family == 0x11 and length >= 12:
        return ProxyHeader(size, str(IPv4Address(body[:4])), int.from_bytes(body[8:10], "big"), _subject(body[12:]))
    if family == 0x21 and length >= 36:
        return ProxyHeader(size, _ipv6(IPv6Address(body[:16])), int.from_bytes(body[32:34], "big"), _subject(body[36:]))
    raise _refusal("unknown address family or short address in PROXY v2 header")


def _ipv6(address: IPv6Address) -> str:
    if address.scope_id is not None:
        raise AddressValueError("a zone means nothing on another machine")
    return str(address.ipv4_mapped or address)


def _subject(tlvs: bytes) -> str | None:
    """Find the client certificate's common name; only when the proxy has verified the certificate."""
    subject: str | None = None
    for kind, value in _tlvs(tlvs):
        if kind != TYPE_SSL:
            continue
        if len(value) < 5:
            raise _refusal("malformed SSL part in PROXY v2 header")
        client, verify = value[0], struct.unpack(">I", value[1:5])[0]
        for part, name in _tlvs(value[5:]):
            if part == SUBTYPE_SSL_CN and client & CLIENT_SSL and client & CLIENT_CERT and verify == 0:
                subject = f"={_name(name)}"
    return subject


def _tlvs(data: bytes) -> list[tuple[int, bytes]]:
    found: list[tuple[int, bytes]] = []
    at = 0
    while at < len(data):
        if at + 3 > len(data):
            raise _refusal("cut-off part in PROXY v2 header")
        length = int.from_bytes(data[at + 1 : at + 3], "big")
        if at + 3 + length > len(data):
            raise _refusal("part longer than the PROXY v2 header")
        found.append((data[at], data[at + 3 : at + 3 + length]))
        at += 3 + length
    return found


def _name(value: bytes) -> str:
    try:
        name = value.decode("utf-8")
    except UnicodeDecodeError:
        raise _refusal("the client's common name is not UTF-8") from None
    if not name or len(value) > SUBJECT_MAX_BYTES or not name.isprintable():
        raise _refusal("the client's common name is empty, too long, or not printable")
    return name


def _refusal(text: str) -> FilterClosed:
    return FilterClosed(Reason.PROTOCOL_ERROR, text)
