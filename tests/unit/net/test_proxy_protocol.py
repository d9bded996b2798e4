"""PROXY protocol: who the client is, or a refusal; nothing in between."""

from __future__ import annotations

import struct

import pytest

from iothub.net.filters import ClientFacts, FilterClosed
from iothub.net.proxy_protocol import V2_SIGNATURE, ProxyFilter, parse_header


def v2(body: bytes, *, command: int = 0x21, family: int = 0x11, length: int | None = None) -> bytes:
    size = len(body) if length is None else length
    return V2_SIGNATURE + bytes((command, family)) + size.to_bytes(2, "big") + body


def tlv(kind: int, value: bytes) -> bytes:
    return bytes((kind,)) + len(value).to_bytes(2, "big") + value


def ssl_tlv(name: bytes, *, client: int = 0x07, verify: int = 0) -> bytes:
    return tlv(0x20, bytes((client,)) + struct.pack(">I", verify) + tlv(0x21, b"TLSv1.3") + tlv(0x22, name))


V4 = bytes((10, 1, 2, 3, 127, 0, 0, 1)) + struct.pack(">HH", 50_000, 1883)
V6 = bytes(15) + b"\x01" + bytes(15) + b"\x02" + struct.pack(">HH", 50_000, 1883)


def test_proxy_v1_line_gives_the_address_and_leaves_the_rest() -> None:
    """The header goes, the stream stays, in any chunking."""
    client = ClientFacts("127.0.0.1", 1)
    proxy = ProxyFilter(client)
    stream = b"PROXY TCP4 10.1.2.3 10.0.0.1 50000 1883\r\nrest"
    got = b"".join(proxy.receive(stream[at : at + 1]) for at in range(len(stream)))
    assert (got, proxy.is_open, client) == (b"rest", True, ClientFacts("10.1.2.3", 50_000))


def test_proxy_v1_knows_ipv6_and_unknown() -> None:
    """UNKNOWN keeps the socket's own address."""
    header = parse_header(b"PROXY TCP6 2001:db8::1 ::1 4 5\r\n")
    assert header is not None
    assert (header.ip, header.port) == ("2001:db8::1", 4)
    unknown = parse_header(b"PROXY UNKNOWN whatever\r\n")
    assert unknown is not None
    assert unknown.ip is None


@pytest.mark.parametrize(
    "line",
    [
        b"PROXY TCP4 10.1.2.3 10.0.0.1 50000\r\n",
        b"PROXY TCP4 10.1.2.3 10.0.0.1 50000 1883 \r\n",
        b"PROXY TCP4  10.1.2.3 10.0.0.1 50000 1883\r\n",
        b"PROXY TCP4 10.1.2.300 10.0.0.1 50000 1883\r\n",
        b"PROXY TCP4 010.1.2.3 10.0.0.1 50000 1883\r\n",
        b"PROXY TCP4 ::1 ::1 50000 1883\r\n",
        b"PROXY TCP6 fe80::1%eth0 ::1 50000 1883\r\n",
        b"PROXY TCP4 10.1.2.3 10.0.0.1 65536 1883\r\n",
        b"PROXY TCP4 10.1.2.3 10.0.0.1 050 1883\r\n",
        b"PROXY TCP4 10.1.2.3 10.0.0.1 -1 1883\r\n",
        b"PROXY UDP4 10.1.2.3 10.0.0.1 1 1883\r\n",
        b"PROXY \r\n",
        b"PROXY TCP4 " + b"1" * 200,
        b"GET / HTTP/1.1\r\n",
        b"\x10\x0c\x00\x04MQTT",
        b"\r\n\r\n\x00\r\nQUIX",
        v2(V4, command=0x22),
        v2(V4, command=0x11),
        v2(V4[:8]),
        v2(V4, family=0x21),
        v2(V4, family=0x12),
        v2(b"", length=5000),
        v2(V4 + b"\x20\x00"),
        v2(V4 + b"\x20\xff\xff"),
        v2(V4 + tlv(0x20, b"\x07\x00")),
        v2(V4 + ssl_tlv(b"a\x00b")),
        v2(V4 + ssl_tlv(b"a\nb")),
        v2(V4 + ssl_tlv(b"\xff")),
        v2(V4 + ssl_tlv(b"")),
        v2(V4 + ssl_tlv(b"x" * 300)),
    ],
)
def test_proxy_malformed_header_is_refused(line: bytes) -> None:
    """Anything but a well-formed header ends the connection."""
    with pytest.raises(FilterClosed):
        parse_header(line)


def test_proxy_v2_gives_addresses_of_both_families() -> None:
    """Binary headers, with parts that we do not know."""
    header = parse_header(v2(V4 + tlv(0xEE, b"custom")) + b"rest")
    assert header is not None
    assert (header.ip, header.port, header.subject) == ("10.1.2.3", 50_000, None)
    six = parse_header(v2(V6, family=0x21))
    assert six is not None
    assert six.ip == "::1"


def test_proxy_v2_local_and_unspec_keep_the_sockets_address() -> None:
    """Health checks of the proxy itself."""
    for header in (v2(b"", command=0x20, family=0), v2(b"", family=0), v2(bytes(216), family=0x31)):
        parsed = parse_header(header)
        assert parsed is not None
        assert parsed.ip is None


def test_proxy_v2_common_name_counts_only_when_verified() -> None:
    """A name of a certificate that was not shown, or not verified, is no identity."""
    for part, subject in (
        (ssl_tlv(b"device-1"), "=device-1"),
        (ssl_tlv(b"device-1", verify=1), None),
        (ssl_tlv(b"device-1", client=0x01), None),
        (ssl_tlv(b"device-1", client=0x06), None),
    ):
        parsed = parse_header(v2(V4 + part))
        assert parsed is not None
        assert parsed.subject == subject


def test_proxy_mapped_address_is_written_as_ipv4() -> None:
    """One client, one spelling."""
    mapped = bytes(10) + b"\xff\xff" + bytes((10, 1, 2, 3)) + bytes(16) + struct.pack(">HH", 1, 2)
    parsed = parse_header(v2(mapped, family=0x21))
    assert parsed is not None
    assert parsed.ip == "10.1.2.3"
