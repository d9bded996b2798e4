"""TLS as a byte filter: the standard library's SSLObject between two memory buffers, and the files that it needs.

Knows no sockets and no MQTT. Renegotiation is off; what a client certificate says of its holder becomes the certificate subject.
"""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias, cast

from iothub.base import distinguished_names
from iothub.base.errors import ConfigError
from iothub.base.reasons import Reason
from iothub.net.filters import ClientFacts, FilterClosed
from iothub.net.listener_info import ListenerInfo

READ_BYTES = 1 << 16  # more than a record has: what is read takes all of a record
VERSIONS = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}
NEED_AUTHORITIES = {"optional": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
CLIENT_CERTIFICATES = {
    **NEED_AUTHORITIES,
    "none": ssl.CERT_NONE,
    "auto": ssl.CERT_REQUIRED,
}  # of a listener with authorities
SUBJECT_MAX_CHARS = 256
Rdns: TypeAlias = tuple[tuple[tuple[str, str], ...], ...]
CRL_MARK = b"-----BEGIN X509 CRL-----"


class TlsFilter:
    """TLS of one connection; of a client's, the server side."""

    __slots__ = ("_client", "_has_ended", "_incoming", "_outgoing", "_tls", "is_open", "replies")

    def __init__(self, context: ssl.SSLContext, client: ClientFacts, *, is_server: bool = True) -> None:
        self.is_open = False
        self.replies = bytearray()
        self._client = client
        self._has_ended = False
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=is_server)

    def receive(self, data: bytes) -> bytes:
        self._incoming.write(data)
        try:
            if not self.is_open and not self._handshake():
                return b""
            return self._read()
        finally:
            if self._outgoing.pending:
                self.replies += self._outgoing.read()

    def send(self, data: bytes) -> bytes:
        """One SSL_write for a whole flush; OpenSSL cuts it into records of 16 KiB."""
        written = 0
        while written < len(data):
            written += self._tls.write(data if written == 0 else data[written:])
        return self._outgoing.read()

    def final_bytes(self) -> bytes:
        """close_notify, once the handshake is over."""
        if self.is_open and not self._has_ended:
            self._has_ended = True
            with contextlib.suppress(ssl.SSLError):  # it would wait for the peer's close_notify; we do not
                self._tls.unwrap()
        return self._outgoing.read()

    def failure_of(self, error: ssl.SSLError) -> FilterClosed:
        """Return what a failed handshake ends with."""
        if isinstance(error, ssl.SSLCertVerificationError):
            return FilterClosed(Reason.BAD_CREDENTIALS, f"client certificate refused: {error.verify_message}")
        return FilterClosed(Reason.PROTOCOL_ERROR, f"TLS handshake failed: {error.reason}")

    def certificate(self) -> Mapping[str, object]:
        """Return what the verified certificate of the other side says (`ssl.SSLObject.getpeercert`); empty: it has shown none."""
        return self._tls.getpeercert() or {}

    def _handshake(self) -> bool:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        except ssl.SSLError as error:
            raise self.failure_of(error) from None
        subject = _subject(self._tls)
        if subject is not None:
            self._client.subject = subject
        self.is_open = True
        return True

    def _read(self) -> bytes:
        chunks: list[bytes] = []
        while True:
            try:
                chunk = self._tls.read(READ_BYTES)
            except ssl.SSLWantReadError:
                break
            except ssl.SSLZeroReturnError:
                chunk = b""
            except ssl.SSLError as error:
                self._has_ended = True
                raise FilterClosed(Reason.NETWORK, f"TLS failed: {error.reason}", b"".join(chunks)) from None
            if not chunk:
                raise FilterClosed(Reason.NETWORK, "the peer closed TLS", b"".join(chunks))
            chunks.append(chunk)
            if not self._incoming.pending:
                break  # OpenSSL reads no further than a record: it would only say that it wants more
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)


class TlsFiles:
    """A listener's certificate, key and client authorities, as they were read. `context` is what new handshakes use.

    With client authorities a client certificate is required, optional or not asked for; certificate revocation lists in the same file are checked.
    """

    def __init__(self, listener: ListenerInfo) -> None:
        """Raises ConfigError: a file is missing, unreadable, or does not fit the others."""
        self._listener = listener
        self.context = self._load()

    def _load(self) -> ssl.SSLContext:
        info = self._listener
        where = f"listeners.{info.name}"
        minimum = VERSIONS.get(info.min_tls)
        if minimum is None:
            raise ConfigError(f"{where}.min_tls: {info.min_tls!r} is not supported; use 1.2 or 1.3")
        _read(f"{where}.cert_file", info.cert_file)
        _read(f"{where}.key_file", info.key_file)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = minimum
        context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
        _load_certificate(context, info, where)
        if info.client_ca_file or info.client_certificates in NEED_AUTHORITIES:
            _load_authorities(context, info.client_ca_file, f"{where}.client_ca_file")
            context.verify_mode = CLIENT_CERTIFICATES[info.client_certificates]
        return context


def _load_certificate(context: ssl.SSLContext, info: ListenerInfo, where: str) -> None:
    try:
        context.load_cert_chain(info.cert_file, info.key_file, password=lambda: b"")
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise ConfigError(
                f"{where}: the key {info.key_file} does not belong to the certificate {info.cert_file}; "
                f"give the pair that was made together"
            ) from None
        raise ConfigError(
            f"{where}: {info.cert_file} and {info.key_file} cannot be used ({error.reason or 'not PEM'}); "
            f"expected a PEM certificate chain and an unencrypted PEM key"
        ) from None


def _load_authorities(context: ssl.SSLContext, path: str, key: str) -> None:
    content = _read(key, path)
    try:
        context.load_verify_locations(path)
    except ssl.SSLError as error:
        raise ConfigError(f"{key}: {path} holds no usable PEM certificates ({error.reason or 'not PEM'})") from None
    if CRL_MARK in content:
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF


def _read(key: str, path: str) -> bytes:
    if not path:
        raise ConfigError(
            f"{key} is not set; a TLS listener needs it (`iothub cert self-signed` makes a pair for tests)"
        )
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"{key}: cannot read {path}: {error.strerror}") from None


def _subject(tls: ssl.SSLObject) -> str | None:
    """The subject of a verified client certificate; only its common name where the rest has no form that is compared.

    Raises:
        FilterClosed: the common name is not one that can be compared and logged safely (several, empty, NUL, line breaks).
    """
    certificate = tls.getpeercert()
    if not certificate:
        return None
    subject = cast("Rdns", certificate.get("subject", ()))
    names = [value for part in subject for key, value in part if key == "commonName"]
    if any(not name or len(name) > SUBJECT_MAX_CHARS or not name.isprintable() for name in names) or len(names) > 1:
        raise FilterClosed(Reason.BAD_CREDENTIALS, "the client certificate's common name is not usable")
    try:
        return distinguished_names.write(subject)
    except ConfigError:
        return f"={names[0]}" if names else None
