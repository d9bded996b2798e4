"""TLS between memory buffers: versions, client certificates, names, and the files' errors."""

from __future__ import annotations

import contextlib
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from iothub.base.errors import ConfigError
from iothub.base.reasons import Reason
from iothub.net.filters import ClientFacts, FilterClosed
from iothub.net.listener_info import listener_info
from iothub.net.tls import TlsFiles, TlsFilter
from iothub.testing.certificates import Authority, Pair


class Client:
    """A TLS client between memory buffers."""

    def __init__(
        self, authority: Authority, pair: Pair | None = None, *, maximum: ssl.TLSVersion | None = None
    ) -> None:
        context = ssl.create_default_context(cafile=authority.ca_file)
        if maximum is not None:
            context.maximum_version = maximum
        if pair is not None:
            context.load_cert_chain(pair.cert_file, pair.key_file)
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_hostname="localhost")

    def shake(self, server: TlsFilter) -> bytes:
        """Go on until both are through; answers what the server already got."""
        plain = b""
        for _ in range(6):
            with contextlib.suppress(ssl.SSLWantReadError):
                self.tls.do_handshake()
            if data := self.outgoing.read():
                plain += server.receive(data)
            self.incoming.write(bytes(server.replies))
            server.replies.clear()
        return plain


class CountingReads:
    """An SSLObject whose reads are counted."""

    def __init__(self, tls: ssl.SSLObject) -> None:
        self._tls = tls
        self.reads = 0

    def read(self, size: int) -> bytes:
        self.reads += 1
        return self._tls.read(size)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def pair(authority: Authority) -> Pair:
    return authority.issue("server")


def server(pair: Pair, **options: object) -> tuple[TlsFilter, ClientFacts]:
    info = listener_info("tls", cert_file=pair.cert_file, key_file=pair.key_file, **options)
    facts = ClientFacts("127.0.0.1", 1)
    return TlsFilter(TlsFiles(info).context, facts), facts


@pytest.mark.parametrize("sizes", [(100,), (100, 200), (16_384, 1), (50_000,)])
def test_each_record_is_read_once_and_nothing_after_the_last(
    authority: Authority, pair: Pair, sizes: tuple[int, ...]
) -> None:
    """A read that finds nothing raises, and takes longer than one that finds a message."""
    tls, _ = server(pair)
    client = Client(authority)
    client.shake(tls)
    reads = tls._tls = CountingReads(tls._tls)  # type: ignore[assignment]
    for size in sizes:
        client.tls.write(b"x" * size)

    assert tls.receive(client.outgoing.read()) == b"x" * sum(sizes)
    assert reads.reads == sum(-(-size // 16_384) for size in sizes)


def test_parts_of_a_record_wait_for_the_rest_of_it(authority: Authority, pair: Pair) -> None:
    tls, _ = server(pair)
    client = Client(authority)
    client.shake(tls)
    client.tls.write(b"x" * 100)
    client.tls.write(b"y" * 100)
    data = client.outgoing.read()
    half = len(data) // 2 + 10

    assert tls.receive(data[:3]) == b""
    assert tls.receive(data[3:half]) == b"x" * 100
    assert tls.receive(data[half:]) == b"y" * 100


def test_what_comes_with_the_end_of_tls_is_read(authority: Authority, pair: Pair) -> None:
    tls, _ = server(pair)
    client = Client(authority)
    client.shake(tls)
    client.tls.write(b"last")
    with contextlib.suppress(ssl.SSLError):
        client.tls.unwrap()

    with pytest.raises(FilterClosed) as end:
        tls.receive(client.outgoing.read())

    assert end.value.data == b"last"


def test_tls_carries_bytes_both_ways(authority: Authority, pair: Pair) -> None:
    """A handshake, then plain bytes inside and records outside; close_notify at the end."""
    tls, facts = server(pair)
    client = Client(authority)
    client.shake(tls)
    assert tls.is_open
    assert facts.subject is None
    client.tls.write(b"x" * 50_000)
    assert tls.receive(client.outgoing.read()) == b"x" * 50_000
    client.incoming.write(tls.send(b"y" * 100_000))
    got = b""
    while len(got) < 100_000:
        got += client.tls.read(1 << 17)
    assert got == b"y" * 100_000
    client.incoming.write(tls.final_bytes())
    assert client.tls.read(1) == b""


def test_tls_end_by_the_peer_comes_after_its_last_bytes(authority: Authority, pair: Pair) -> None:
    """A DISCONNECT in front of close_notify still counts."""
    tls, _ = server(pair)
    client = Client(authority)
    client.shake(tls)
    client.tls.write(b"last")
    with pytest.raises(ssl.SSLWantReadError):
        client.tls.unwrap()
    with pytest.raises(FilterClosed) as end:
        tls.receive(client.outgoing.read())
    assert (end.value.data, end.value.reason) == (b"last", Reason.NETWORK)


@pytest.mark.parametrize(
    "data", [b"\x10\x0c\x00\x04MQTT", b"GET / HTTP/1.1\r\n\r\n", bytes(64), b"SSH-2.0-OpenSSH\r\n"]
)
def test_tls_refuses_what_is_not_tls(pair: Pair, data: bytes) -> None:
    """Ends at once, holds nothing."""
    tls, _ = server(pair)
    with pytest.raises(FilterClosed) as end:
        tls.receive(data)
    assert end.value.reason is Reason.PROTOCOL_ERROR
    assert not tls.is_open


def test_tls_minimum_version_holds(authority: Authority, pair: Pair) -> None:
    """A client that cannot speak the minimum is refused."""
    tls, _ = server(pair, min_tls="1.3")
    with pytest.raises(FilterClosed):
        Client(authority, maximum=ssl.TLSVersion.TLSv1_2).shake(tls)


def test_tls_client_certificate_names_the_subject(authority: Authority, pair: Pair) -> None:
    """With client authorities set: the whole subject, from the leaf up."""
    tls, facts = server(pair, client_ca_file=authority.ca_file)
    subject = x509.Name.from_rfc4514_string("CN=acme/dev1,OU=a\\,b+UID=7,O=Acmé")
    Client(authority, authority.issue("device", subject=subject)).shake(tls)
    assert facts.subject == "CN=acme/dev1,OU=a\\,b+UID=7,O=Acmé"


def test_tls_subject_without_a_form_leaves_the_common_name(authority: Authority, pair: Pair) -> None:
    """An attribute that is not compared must not be left out of a comparison: the subject is not handed up."""
    tls, facts = server(pair, client_ca_file=authority.ca_file)
    unknown = x509.NameAttribute(x509.ObjectIdentifier("1.3.6.1.4.1.99999.1"), "x")
    subject = x509.Name([x509.NameAttribute(x509.oid.NameOID.COMMON_NAME, "dev1"), unknown])
    Client(authority, authority.issue("device", subject=subject)).shake(tls)
    assert facts.subject == "=dev1"


def test_tls_client_without_certificate_is_refused(authority: Authority, pair: Pair) -> None:
    """Client authorities make a certificate required."""
    tls, _ = server(pair, client_ca_file=authority.ca_file)
    with pytest.raises(FilterClosed):
        Client(authority).shake(tls)


@pytest.mark.parametrize(
    ("asked", "is_with_one", "subject"),
    [
        ("none", True, None),
        ("none", False, None),
        ("optional", True, "CN=acme/dev1"),
        ("optional", False, None),
        ("required", True, "CN=acme/dev1"),
    ],
)
def test_tls_asks_for_certificates_as_it_is_told(
    authority: Authority, pair: Pair, asked: str, is_with_one: bool, subject: str | None
) -> None:
    """The same authorities for devices with a certificate and, where it is optional, for those with a password."""
    tls, facts = server(pair, client_ca_file=authority.ca_file, client_certificates=asked)

    Client(authority, authority.issue("device", ("acme/dev1",)) if is_with_one else None).shake(tls)

    assert (tls.is_open, facts.subject) == (True, subject)


def test_tls_that_requires_certificates_refuses_a_client_without(authority: Authority, pair: Pair) -> None:
    tls, _ = server(pair, client_ca_file=authority.ca_file, client_certificates="required")
    with pytest.raises(FilterClosed):
        Client(authority).shake(tls)


def test_tls_optional_certificate_of_another_authority_is_refused(
    authority: Authority, pair: Pair, tmp_path: Path
) -> None:
    """Who shows one means it: a wrong one is no way in without one."""
    tls, facts = server(pair, client_ca_file=authority.ca_file, client_certificates="optional")
    with pytest.raises(FilterClosed) as end:
        Client(authority, Authority(tmp_path, "other").issue("fake", ("acme/dev1",))).shake(tls)
    assert (end.value.reason, facts.subject) == (Reason.BAD_CREDENTIALS, None)


@pytest.mark.parametrize("asked", ["optional", "required"])
def test_tls_that_asks_needs_authorities(pair: Pair, asked: str) -> None:
    """Otherwise nobody could tell a good certificate from a bad one."""
    with pytest.raises(ConfigError, match="client_ca_file is not set"):
        server(pair, client_certificates=asked)


def test_tls_certificate_of_another_authority_is_refused(authority: Authority, pair: Pair, tmp_path: Path) -> None:
    """The right name from the wrong authority is no identity."""
    tls, facts = server(pair, client_ca_file=authority.ca_file)
    with pytest.raises(FilterClosed) as end:
        Client(authority, Authority(tmp_path, "other").issue("fake", ("acme/dev1",))).shake(tls)
    assert end.value.reason is Reason.BAD_CREDENTIALS
    assert facts.subject is None


def test_tls_expired_certificate_is_refused(authority: Authority, pair: Pair) -> None:
    """Validity is checked."""
    tls, _ = server(pair, client_ca_file=authority.ca_file)
    with pytest.raises(FilterClosed):
        Client(authority, authority.issue("expired", ("acme/dev1",), is_expired=True)).shake(tls)


def test_tls_revoked_certificate_is_refused(tmp_path: Path) -> None:
    """A revocation list in the authorities' file is obeyed."""
    authority = Authority(tmp_path)
    pair, good, bad = authority.issue("server"), authority.issue("good", ("good",)), authority.issue("bad", ("bad",))
    authority.revoke(bad)
    tls, facts = server(pair, client_ca_file=authority.ca_file)
    Client(authority, good).shake(tls)
    assert facts.subject == "CN=good"
    tls, facts = server(pair, client_ca_file=authority.ca_file)
    with pytest.raises(FilterClosed):
        Client(authority, bad).shake(tls)
    assert facts.subject is None


@pytest.mark.parametrize("names", [("acme/dev1", "acme/dev2"), ("acme\n/dev1",), ("acme/dev1\x00.evil",)])
def test_tls_name_that_cannot_be_compared_safely_is_refused(
    authority: Authority, pair: Pair, names: tuple[str, ...]
) -> None:
    """Several names, line breaks and NUL are refused, not cut."""
    tls, facts = server(pair, client_ca_file=authority.ca_file)
    with pytest.raises(FilterClosed) as end:
        Client(authority, authority.issue("odd", names)).shake(tls)
    assert end.value.reason is Reason.BAD_CREDENTIALS
    assert facts.subject is None


def test_tls_files_errors_name_key_and_file(authority: Authority, pair: Pair, tmp_path: Path) -> None:
    """One line that says which setting, which file and what to do."""
    other = authority.issue("other")
    text = tmp_path / "text.pem"
    text.write_text("not a certificate")
    secret = tmp_path / "secret.key"
    key = serialization.load_pem_private_key(Path(pair.key_file).read_bytes(), None)
    secret.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"word"),
        )
    )
    for options, words in (
        ({"cert_file": "", "key_file": pair.key_file}, "listeners.tls.cert_file is not set"),
        (
            {"cert_file": pair.cert_file, "key_file": str(tmp_path / "no.key")},
            "listeners.tls.key_file: cannot read .*no.key",
        ),
        ({"cert_file": pair.cert_file, "key_file": other.key_file}, "other.key does not belong to the certificate"),
        ({"cert_file": str(text), "key_file": pair.key_file}, "text.pem and .* cannot be used"),
        ({"key_file": str(secret)}, "expected a PEM certificate chain and an unencrypted PEM key"),
        ({"min_tls": "1.1"}, "min_tls: '1.1' is not supported; use 1.2 or 1.3"),
        ({"client_ca_file": str(text)}, "client_ca_file: .*text.pem holds no usable PEM certificates"),
    ):
        settings = {"cert_file": pair.cert_file, "key_file": pair.key_file} | options
        with pytest.raises(ConfigError, match=words):
            TlsFiles(listener_info("tls", **settings))
