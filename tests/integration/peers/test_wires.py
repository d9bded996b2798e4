"""Wires over TCP, TLS and Unix sockets, in both twins: bytes in order, ends that lose nothing, and every refusal by its name."""

from __future__ import annotations

import os
import re
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from iothub.peers import certificates
from iothub.peers.certificates import Credentials
from tests.integration.peers.conftest import Authority, Owner, Peer

MakePeer = Callable[..., Peer]
SIZE = 3_000_000


@pytest.fixture(params=["tcp", "tls", "unix"])
def pair(request: pytest.FixtureRequest, peer: MakePeer, authority: Authority, tmp_path: Path) -> tuple[Peer, Peer]:
    """Node 1 has dialled node 2, and both have a wire."""
    is_tls = request.param == "tls"
    one, two = (peer(authority.credentials(node) if is_tls else None) for node in (1, 2))
    address = two.listen(f"unix:{tmp_path}/peer.sock" if request.param == "unix" else "127.0.0.1:0")
    one.dial(address)
    one.until(lambda: one.dialled and two.accepted and two.accepted[0].data == b"hello")
    return one, two


def test_wire_carries_bytes_both_ways_in_order(pair: tuple[Peer, Peer]) -> None:
    """More than any buffer holds; nothing is left unsent at the end."""
    one, two = pair
    sent, back = os.urandom(SIZE), os.urandom(SIZE)
    one.thread.call(lambda: (one.dialled[0].wire.write(sent), two.accepted[0].wire.write(back)))

    one.until(lambda: len(one.dialled[0].data) == SIZE and len(two.accepted[0].data) == SIZE + 5)

    assert bytes(two.accepted[0].data) == b"hello" + sent
    assert bytes(one.dialled[0].data) == back
    assert one.thread.call(one.dialled[0].wire.unsent) == 0


def test_wire_certifies_the_node_of_the_other_side(peer: MakePeer, authority: Authority) -> None:
    """Each side learns the number from the certificate; without TLS nobody claims one."""
    one, two, plain = peer(authority.credentials(1)), peer(authority.credentials(2)), peer()
    one.dial(two.listen())
    plain.dial(plain.listen())
    one.until(lambda: one.dialled and two.accepted and plain.dialled and plain.accepted)

    nodes = [each.wire.certified_node for each in (*one.dialled, *two.accepted, *plain.dialled, *plain.accepted)]

    assert nodes == [2, 1, None, None]


def test_wire_that_is_closed_flushes_what_was_written_last(pair: tuple[Peer, Peer]) -> None:
    """With the other side's bytes unread: they must not turn the close into a reset. Both are told once."""
    one, two = pair

    def refuse(owner: Owner) -> None:
        owner.wire.write(b"y" * 100_000)
        owner.wire.close()
        owner.wire.write(b"after the end")

    two.accepted[0].on_data = refuse
    one.thread.call(lambda: one.dialled[0].wire.write(b"x" * 500_000))
    one.until(lambda: one.dialled[0].reasons and two.accepted[0].reasons)

    assert bytes(one.dialled[0].data) == b"y" * 100_000
    assert (one.dialled[0].reasons, two.accepted[0].reasons) == (["network"], ["network"])


def test_wire_gives_no_bytes_after_it_was_closed(pair: tuple[Peer, Peer]) -> None:
    """Not in the same turn either: who closes a link before it answers another reads nothing of the old one."""
    one, two = pair
    owner = two.accepted[0]
    owner.on_data = lambda owner: owner.wire.close()
    one.thread.call(lambda: one.dialled[0].wire.write(b"z" * SIZE))
    one.until(lambda: owner.reasons)

    first = len(owner.data)
    one.until(lambda: one.dialled[0].reasons)

    assert 5 < first == len(owner.data) <= 5 + (1 << 16)


def test_wire_counts_what_the_kernel_has_not_taken(pair: tuple[Peer, Peer]) -> None:
    """The bound of a link counts on it."""
    one, two = pair
    two.thread.call(lambda: setattr(two.accepted[0], "on_data", lambda _owner: None))
    wire = one.dialled[0].wire

    unsent = one.thread.call(lambda: (wire.write(b"w" * SIZE), wire.unsent())[1])

    assert unsent >= SIZE
    one.until(lambda: wire.unsent() == 0)


def test_unix_socket_is_for_this_user_alone(peer: MakePeer, tmp_path: Path) -> None:
    """Mode 0600; what a killed hub left behind is replaced; a path may be longer than a socket's address."""
    directory = tmp_path / ("d" * 100)
    directory.mkdir()
    path = directory / "peer.sock"
    socket.socket(socket.AF_UNIX).close()
    path.touch()
    one = peer()

    one.dial(one.listen(f"unix:{path}"))
    one.until(lambda: one.accepted and one.accepted[0].data == b"hello")

    assert stat.S_IMODE(path.stat().st_mode) == 0o600


# --- what does not become a wire


def expired(authority: Authority) -> certificates.Pem:
    return certificates.issue(authority.pem, 1, [], -1)


def unchecked(authority: Authority, pem: certificates.Pem) -> Credentials:
    """As `certificates.load` makes them, for files that it refuses."""
    files = authority.files(1, pem=pem)
    return Credentials(
        *(
            certificates._context(side, files)
            for side in (certificates.ssl.PROTOCOL_TLS_SERVER, certificates.ssl.PROTOCOL_TLS_CLIENT)
        )
    )


def is_served(one: Peer, two: Peer, address: str) -> None:
    """A good peer gets in after all that."""
    before = len(two.accepted)
    one.dial(address)
    one.until(lambda: len(two.accepted) == before + 1 and two.accepted[-1].data == b"hello")


@pytest.mark.parametrize("kind", ["another authority", "expired", "none"])
def test_peer_with_a_bad_certificate_is_refused_by_name(
    peer: MakePeer, authority: Authority, tmp_path: Path, kind: str
) -> None:
    """The listener names it, the dialler is told, and the next peer is served."""
    two = peer(authority.credentials(2))
    if kind == "none":
        credentials = unchecked(authority, certificates.issue(authority.pem, 1, [], 1))
        client = certificates.ssl.SSLContext(certificates.ssl.PROTOCOL_TLS_CLIENT)
        client.check_hostname, client.verify_mode = False, certificates.ssl.CERT_NONE
        credentials = Credentials(credentials.server, client)
    else:
        stranger = certificates.issue(certificates.make_authority(), 1, [], 1)
        credentials = unchecked(authority, stranger if kind == "another authority" else expired(authority))
    bad, address = peer(credentials), two.listen()
    bad.dial(address)
    bad.until(lambda: two.refused and (bad.failures or (bad.dialled and bad.dialled[0].reasons)))

    names = {
        "another authority": "certificate_refused",
        "expired": "certificate_expired",
        "none": "certificate_missing",
    }
    heard = bad.failures or bad.dialled[0].reasons
    assert [refusal for refusal, _ in two.refused] == [names[kind]]
    assert heard[0].startswith(names[kind] if kind != "none" else "certificate_of_another_node")
    assert bad.troubles == heard
    if kind != "none":  # in words, with what to do, and OpenSSL's own behind them
        assert re.search(r"cluster\.ca_file.*issue.*\(|has expired; issue it anew.*\(", two.refused[0][1])
        assert re.search(r"refused this hub's certificate: it .*issue.*\(.*ALERT_", heard[0])
    assert two.accepted == []
    is_served(peer(authority.credentials(3)), two, address)


@pytest.mark.parametrize("kind", ["another node", "another authority", "expired"])
def test_dialled_peer_with_a_bad_certificate_is_refused_by_name(
    peer: MakePeer, authority: Authority, kind: str
) -> None:
    """The dialler does not talk to whoever answers at an address: it must be the node that is dialled."""
    one = peer(authority.credentials(4))
    stranger = certificates.issue(certificates.make_authority(), 2, [], 1)
    late = certificates.issue(authority.pem, 2, [], -1)
    credentials = {
        "another node": lambda: authority.credentials(3),
        "another authority": lambda: unchecked(authority, stranger),
        "expired": lambda: unchecked(authority, late),
    }[kind]()
    one.dial(peer(credentials).listen(), node=2)
    one.until(lambda: one.failures)

    names = {
        "another node": "certificate_of_another_node: expected that of node 2, got that of node 3",
        "another authority": "certificate_refused",
        "expired": "certificate_expired",
    }
    assert one.failures[0].startswith(names[kind])
    assert one.dialled == []


def test_certificate_for_no_node_is_refused(peer: MakePeer, authority: Authority) -> None:
    """The authority may have signed other things."""
    two = peer(authority.credentials(2))
    one = peer(unchecked(authority, certificates.issue(authority.pem, 99_999_999, [], 1)))
    one.dial(two.listen())
    one.until(lambda: two.refused)

    assert two.refused == [("certificate_of_another_node", "the certificate is for no node")]
    assert two.accepted == []


def test_plain_text_to_a_tls_listener_is_refused_by_name(peer: MakePeer, authority: Authority) -> None:
    """Whatever it is: HTTP, a link without TLS, noise, or nothing at all."""
    two, plain = peer(authority.credentials(2)), peer()
    address = two.listen()
    plain.dial(address)
    plain.until(lambda: plain.dialled and plain.dialled[0].reasons)
    for noise in (b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 5000, b"\x00" * 5000):
        with socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2]))) as bare:
            bare.sendall(noise)
            with pytest.MonkeyPatch.context():
                while _received(bare):
                    pass
    two.until(lambda: len(two.refused) == 4)

    assert {refusal for refusal, _ in two.refused} <= {"no_tls", "tls_failed"}
    assert two.refused[0][0] == "no_tls"
    is_served(peer(authority.credentials(3)), two, address)


def _received(bare: socket.socket) -> bytes:
    try:
        return bare.recv(1 << 16)
    except ConnectionError:
        return b""


def test_tls_to_a_plain_listener_is_refused_by_name(peer: MakePeer, authority: Authority) -> None:
    """The plain side gets bytes that are no frames, and closes; the dialler knows that this was no TLS."""
    one, plain = peer(authority.credentials(1)), peer()
    one.dial(plain.listen())
    one.until(lambda: plain.accepted and plain.accepted[0].data)
    assert plain.accepted[0].data[:1] == b"\x16"
    one.thread.call(lambda: (plain.accepted[0].wire.write(b"REFUSED"), plain.accepted[0].wire.close()))
    one.until(lambda: one.failures)

    assert one.failures[0].startswith(("no_tls", "closed"))
    assert one.dialled == []


def test_address_where_nobody_listens_fails_with_the_cause(peer: MakePeer, tmp_path: Path) -> None:
    """Refused, unknown, no address at all, a socket that is not there."""
    one = peer()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    for address in (
        f"127.0.0.1:{port}",
        f"localhost:{port}",
        "no-such-host.invalid:1",
        "nonsense",
        f"unix:{tmp_path}/none",
    ):
        count = len(one.failures)
        one.dial(address)
        one.until(lambda count=count: len(one.failures) == count + 1)

    assert one.failures[0] == "Connection refused"
    assert one.failures[1] == "Connection refused"
    assert one.failures[2].startswith("no-such-host.invalid: ")
    assert one.failures[3] == "'nonsense' is no address of a hub: expected host:port or unix:PATH"
    assert one.failures[4] == "No such file or directory"
    assert one.dialled == []


def test_name_is_resolved_and_dialled(peer: MakePeer) -> None:
    """`cluster.advertise` may be a host name."""
    one = peer()
    port = one.listen().rpartition(":")[2]
    one.dial(f"localhost:{port}")
    one.until(lambda: one.accepted and one.accepted[0].data == b"hello")

    assert one.failures == []


def test_dials_that_are_ended_leave_nothing_open(peer: MakePeer, authority: Authority) -> None:
    """A hub that stops: neither side of a dial under way hears of it, and no descriptor stays."""
    one = peer(authority.credentials(1))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        one.dial(f"127.0.0.1:{silent.getsockname()[1]}")
        accepted, _ = silent.accept()
        one.until(lambda: one.dialler._dials)
        one.thread.call(one.dialler.close)
        accepted.settimeout(300)
        while _received(accepted):
            pass
        accepted.close()

    assert one.failures == []
    assert one.dialler._dials == set()
