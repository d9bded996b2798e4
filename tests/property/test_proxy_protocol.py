"""PROXY protocol: arbitrary bytes give an address, a wish for a bounded number of more bytes, or a refusal."""

from __future__ import annotations

from ipaddress import ip_address

from hypothesis import given, settings
from hypothesis import strategies as st

from iothub.net.filters import ClientFacts, FilterClosed
from iothub.net.proxy_protocol import V2_MAX_BYTES, V2_SIGNATURE, ProxyFilter, ProxyHeader, parse_header
from tests.support.night import by_day

v2_like = st.builds(
    lambda command, family, length, body: V2_SIGNATURE + bytes((command, family)) + length.to_bytes(2, "big") + body,
    st.sampled_from([0x20, 0x21, 0x21, 0x21, 0x10, 0xFF]),
    st.sampled_from([0x00, 0x11, 0x11, 0x21, 0x31, 0x12]),
    st.integers(0, 80) | st.integers(0, 65_535),
    st.binary(max_size=120),
)
v1_like = st.builds(
    lambda fields: b"PROXY " + b" ".join(fields) + b"\r\n",
    st.lists(
        st.sampled_from([b"TCP4", b"TCP6", b"UNKNOWN", b"10.0.0.1", b"::1", b"1", b"65535", b"", b"x"]), max_size=7
    ),
)


def parsed(data: bytes) -> ProxyHeader | str | None:
    try:
        return parse_header(data)
    except FilterClosed as error:
        return str(error)


@settings(max_examples=by_day(200, 400), deadline=None)
@given(st.one_of(st.binary(max_size=64), v1_like, v2_like))
def test_proxy_header_of_any_bytes_is_an_address_or_a_refusal(data: bytes) -> None:
    """No third outcome; an address is one, a header never reaches beyond its bytes."""
    header = parsed(data)
    if isinstance(header, ProxyHeader):
        assert header.size_bytes <= len(data)
        if header.ip is not None:
            ip_address(header.ip)
            assert 0 <= header.port <= 65_535
    elif header is None:
        assert len(data) < V2_MAX_BYTES


@settings(max_examples=by_day(100, 200), deadline=None)
@given(st.one_of(v1_like, v2_like), st.binary(max_size=20))
def test_proxy_filter_byte_by_byte_is_the_same_as_at_once(data: bytes, rest: bytes) -> None:
    """Chunks mean nothing; what follows the header comes out unchanged."""
    whole = data + rest
    outcomes = []
    for chunks in ([whole], [whole[at : at + 1] for at in range(len(whole))]):
        facts = ClientFacts("127.0.0.1", 1)
        proxy = ProxyFilter(facts)
        try:
            outcomes.append((b"".join(proxy.receive(chunk) for chunk in chunks), proxy.is_open, facts))
        except FilterClosed:
            outcomes.append("refused")
    assert outcomes[0] == outcomes[1]
