"""Devices prove themselves with TLS client certificates: by their common name, or by their whole subject."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography import x509

from iothub.testing.certificates import Authority, Pair
from tests.support.clients.raw import RawClient
from tests.support.hubs.hub import Hub
from tests.support.waiting import PATIENCE_S


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def hub(make_hub: Callable[..., Hub], authority: Authority) -> Hub:
    """A TLS listener that asks for certificates; `dev1` has a common name, `dev2` a whole subject."""
    pair = authority.issue("server")
    hub = make_hub("tls", auth__failure_reply_ms="0")
    files = {"cert_file": pair.cert_file, "key_file": pair.key_file, "client_ca_file": authority.ca_file}
    hub.settings.update({f"listeners.tls.{key}": path for key, path in files.items()})
    hub.run("device", "set-certificate", "acme", "dev1", "meter one")
    hub.run("device", "set-certificate", "acme", "dev2", "cn=meter two, O=Acme\\, Inc.")
    hub.start()
    return hub


def certificate(authority: Authority, subject: str) -> Pair:
    return authority.issue("client", subject=x509.Name.from_rfc4514_string(subject))


def answer(hub: Hub, authority: Authority, pair: Pair, device: str) -> int:
    """CONNACK's code for a device that shows this certificate, and no password."""
    context = ssl.create_default_context(cafile=authority.ca_file)
    context.load_cert_chain(pair.cert_file, pair.key_file)
    plain = socket.create_connection(("127.0.0.1", hub.ports["tls"]), timeout=PATIENCE_S)
    with RawClient(0, 5, stream=context.wrap_socket(plain, server_hostname="localhost")) as client:
        return client.connect("c", f"acme/{device}", None).code


def test_subject_that_a_device_was_given_lets_it_in(hub: Hub, authority: Authority) -> None:
    """Refused like any wrong credential: another name, more or less than the whole subject, another device."""
    for subject, codes in (
        ("CN=meter one", (0, 0x87)),
        ("CN=meter one,O=Other", (0, 0x87)),
        ("CN=meter two,O=Acme\\, Inc.", (0x87, 0)),
        ("CN=meter two", (0x87, 0x87)),
        ("CN=meter two,O=Acme", (0x87, 0x87)),
        ("O=Acme\\, Inc.,CN=meter two", (0x87, 0x87)),
        ("CN=meter two,O=Acme\\, Inc.,C=DE", (0x87, 0x87)),
    ):
        pair = certificate(authority, subject)
        assert (answer(hub, authority, pair, "dev1"), answer(hub, authority, pair, "dev2")) == codes, subject


@pytest.mark.parametrize(
    ("subject", "words"), [("O=Acme,XY=dev1", "'XY' is not compared"), ("O = Acme, CN = dev1", "from the leaf up")]
)
def test_subject_in_another_form_is_refused(hub: Hub, authority: Authority, subject: str, words: str) -> None:
    """A form that is not compared, or openssl's own from the root down, is refused by name, not stored."""
    refused = hub.run("device", "set-certificate", "acme", "dev1", subject, check=False)

    assert refused.returncode == 2
    assert words in refused.stderr
    assert answer(hub, authority, certificate(authority, "CN=meter one"), "dev1") == 0
