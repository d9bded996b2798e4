"""The TLS of a link in either direction: a handshake that ends with the node number of the other side's certificate, or with a reason by name.

Knows no socket and no frame. What it adds to `iothub.net.tls`: names for what goes wrong between hubs, and what ended a connection that was open:
in TLS 1.3 a client learns only after its own handshake that its certificate was refused.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable

from iothub.base.reasons import Reason, WireRefusal
from iothub.net.filters import ClientFacts, FilterClosed
from iothub.net.ports import Channel
from iothub.net.stream import Stream
from iothub.net.tls import TlsFilter
from iothub.peers import link_files

OnRefused = Callable[[WireRefusal, str], None]
"""Gets the name and what is known beyond it."""

_BY_ERROR = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": WireRefusal.CERTIFICATE_MISSING,
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": WireRefusal.CERTIFICATE_MISSING,
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": WireRefusal.CERTIFICATE_EXPIRED,
    "SSL/TLS_ALERT_CERTIFICATE_EXPIRED": WireRefusal.CERTIFICATE_EXPIRED,
    "TLSV1_ALERT_UNKNOWN_CA": WireRefusal.CERTIFICATE_REFUSED,
    "TLSV1_ALERT_DECRYPT_ERROR": WireRefusal.CERTIFICATE_REFUSED,
    "SSLV3_ALERT_BAD_CERTIFICATE": WireRefusal.CERTIFICATE_REFUSED,
    "WRONG_VERSION_NUMBER": WireRefusal.NO_TLS,
    "HTTP_REQUEST": WireRefusal.NO_TLS,
    "HTTPS_PROXY_REQUEST": WireRefusal.NO_TLS,
    "RECORD_LAYER_FAILURE": WireRefusal.NO_TLS,
    "PACKET_LENGTH_TOO_LONG": WireRefusal.NO_TLS,
    "UNEXPECTED_MESSAGE": WireRefusal.NO_TLS,
}
_EXPIRED = 10  # X509_V_ERR_CERT_HAS_EXPIRED
_ANEW = "issue it anew with `iothub cluster issue NODE --force`, and copy it there"
_ONE_AUTHORITY = "issue the certificates of both hubs by the same authority, and copy its ca.pem with each"
_WORDS_HERE = {
    WireRefusal.CERTIFICATE_REFUSED: "expected a certificate of the other hub that an authority in this hub's cluster.ca_file has signed; "
    + _ONE_AUTHORITY,
    WireRefusal.CERTIFICATE_EXPIRED: f"the other hub's certificate has expired; {_ANEW}",
    WireRefusal.CERTIFICATE_MISSING: "the other side has shown no certificate; expected a hub of this installation",
}
_WORDS_THERE = {
    WireRefusal.CERTIFICATE_REFUSED: "the other hub refused this hub's certificate: it expected one that an authority in its cluster.ca_file has "
    f"signed; {_ONE_AUTHORITY}",
    WireRefusal.CERTIFICATE_EXPIRED: f"the other hub refused this hub's certificate: it has expired; {_ANEW}",
    WireRefusal.CERTIFICATE_MISSING: "the other hub refused this hub: it has shown no certificate",
}


class LinkTls(TlsFilter):
    """TLS of one connection between hubs. `ending`: why it ended after the handshake; empty: by no fault."""

    __slots__ = ("ending",)

    def __init__(self, context: ssl.SSLContext, *, is_server: bool) -> None:
        super().__init__(context, ClientFacts("", 0), is_server=is_server)
        self.ending = ""

    def receive(self, data: bytes) -> bytes:
        try:
            return super().receive(data)
        except FilterClosed as end:
            self.ending = str(end)
            raise

    def failure_of(self, error: ssl.SSLError) -> FilterClosed:
        return FilterClosed(Reason.PROTOCOL_ERROR, _refusal_of(error))

    @property
    def node(self) -> int | None:
        """The node number of the other side's certificate; None: it is for no node."""
        return link_files.node_of(self.certificate())


class Handshake:
    """The TLS handshake of one channel. Fulfils `iothub.net.stream.StreamOwner`.

    Invariant: of `on_open` and `on_refused` one is called, once; neither before `begin` or bytes from the other side.
    """

    def __init__(
        self,
        channel: Channel,
        context: ssl.SSLContext,
        on_open: Callable[[LinkTls], bool],
        on_refused: OnRefused,
        *,
        is_server: bool,
    ) -> None:
        """`on_open`: False ends the connection."""
        self._tls = LinkTls(context, is_server=is_server)
        self._on_open = on_open
        self._on_refused = on_refused
        self._is_over = False
        self._stream = channel.stream = Stream(channel, self, [self._tls], ClientFacts("", 0))

    def begin(self) -> None:
        """The client's side speaks first."""
        self._stream.received(b"")

    def opened(self, _channel: Channel, _client: ClientFacts) -> bool:
        self._is_over = True
        return self._on_open(self._tls)

    def failed(self, _client: ClientFacts, _reason: Reason, text: str) -> None:
        word, _, detail = text.partition(": ")
        known = WireRefusal(word) if word in WireRefusal._value2member_map_ else WireRefusal.TLS_FAILED
        self.refuse(known, detail or text)

    def refuse(self, refusal: WireRefusal, detail: str) -> None:
        """It does not come to its end: once, and not after it."""
        if not self._is_over:
            self._is_over = True
            self._on_refused(refusal, detail)


def refusal_of(ending: str) -> str:
    """Name what ended an open connection, if it was a refusal of the certificate by the other side; else empty."""
    reason = ending.removeprefix("TLS failed: ")
    return _by_name(reason) if reason in _BY_ERROR else ""


def _refusal_of(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        refusal = WireRefusal.CERTIFICATE_EXPIRED if error.verify_code == _EXPIRED else WireRefusal.CERTIFICATE_REFUSED
        return f"{refusal}: {_WORDS_HERE[refusal]} ({error.verify_message})"
    return _by_name(error.reason or "no TLS")


def _by_name(reason: str) -> str:
    """Say in words what OpenSSL's name of an error stands for, if it is about a certificate; an alert is what the other side has said."""
    refusal = _BY_ERROR.get(reason, WireRefusal.TLS_FAILED)
    words = (_WORDS_THERE if "_ALERT_" in reason else _WORDS_HERE).get(refusal)
    return f"{refusal}: {reason}" if words is None else f"{refusal}: {words} ({reason})"
