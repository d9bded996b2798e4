"""The certificates of links: an authority of the installation's own, one certificate for each node number, and what is loaded of them.

Knows no connection. A certificate names its node by a URI among its alternative names; host names in it are for other programs, no hub looks at them.
"""

from __future__ import annotations

import ipaddress
import ssl
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from iothub.base.errors import ConfigError
from iothub.peers.link_files import CA_FILE, CA_KEY_FILE, NODE, LinkFiles, only_node

MOST_DAYS = 3650
_EARLIER = timedelta(minutes=5)  # clocks of machines differ
_NAME_CHARS = 253
_HINT = "`iothub cluster issue` makes the certificate of a node"


@dataclass(frozen=True, slots=True)
class Pem:
    """A certificate and its private key."""

    certificate: bytes
    key: bytes


@dataclass(frozen=True, slots=True)
class Credentials:
    """What new links use, for each side of a handshake."""

    server: ssl.SSLContext
    client: ssl.SSLContext


def make_authority(days: int = MOST_DAYS) -> Pem:
    """Make the authority of an installation."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name("iothub cluster authority")
    certificate = (
        _builder(name, name, key, days)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(is_authority=True), critical=True)
        .sign(key, hashes.SHA256())
    )
    return _pem(certificate, key)


def issue(authority: Pem, node: int, hosts: Sequence[str], days: int) -> Pem:
    """Issue the certificate of a node. `hosts`: host names and addresses that it is valid for, too.

    Raises:
        ConfigError: the authority cannot be used, or a host is neither a name nor an address.
    """
    ca, ca_key = _authority(authority)
    key = ec.generate_private_key(ec.SECP256R1())
    names = [x509.UniformResourceIdentifier(f"{NODE}{node}"), *(_host(host) for host in dict.fromkeys(hosts))]
    certificate = (
        _builder(_name(f"iothub node {node}"), ca.subject, key, days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(is_authority=False), critical=True)
        .add_extension(
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False
        )
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    return _pem(certificate, key)


def load(files: LinkFiles, node: int) -> Credentials:
    """Read and check them. Raises ConfigError: a file is missing, does not fit the others, or is another node's."""
    authorities, own = (
        _certificates("cluster.ca_file", files.ca),
        _certificates("cluster.certificate_file", files.certificate),
    )
    _read("cluster.key_file", files.key)
    _require_node(files.certificate, own[0], node)
    _require_issued(files, own[0], authorities)
    return Credentials(_context(ssl.PROTOCOL_TLS_SERVER, files), _context(ssl.PROTOCOL_TLS_CLIENT, files))


def _require_node(path: Path, certificate: x509.Certificate, node: int) -> None:
    found = _node_in(certificate)
    if found != node:
        whose = "no node" if found is None else f"node {found}"
        raise ConfigError(
            f"cluster.certificate_file: {path} is the certificate of {whose}, this hub is node {node}; {_HINT}"
        )
    if certificate.not_valid_after_utc <= datetime.now(UTC):
        until = certificate.not_valid_after_utc.date().isoformat()
        raise ConfigError(f"cluster.certificate_file: {path} expired on {until}; {_HINT}")


def _require_issued(files: LinkFiles, certificate: x509.Certificate, authorities: Sequence[x509.Certificate]) -> None:
    for authority in authorities:
        with suppress(ValueError, TypeError, InvalidSignature):
            certificate.verify_directly_issued_by(authority)
            return
    raise ConfigError(
        f"cluster.certificate_file: {files.certificate} was not issued by the authority in {files.ca}; copy ca.pem, cert.pem and key.pem "
        "from the same `iothub cluster issue`"
    )


def _context(protocol: int, files: LinkFiles) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.check_hostname = False  # the node number is looked at
    context.verify_mode = ssl.CERT_REQUIRED
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    try:
        context.load_cert_chain(files.certificate, files.key, password=lambda: b"")
        context.load_verify_locations(files.ca)
    except ssl.SSLError as error:
        raise ConfigError(
            f"cluster.key_file: {files.key} cannot be used with the certificate {files.certificate} ({error.reason or 'not PEM'}); "
            "expected the unencrypted key that was made together with it"
        ) from None
    return context


def _certificates(setting: str, path: Path) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(_read(setting, path))
    except ValueError:
        raise ConfigError(f"{setting}: {path} contains no certificate; expected a PEM file") from None


def _read(setting: str, path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{setting}: {path}: {error.strerror}; {_HINT}") from None


def _node_in(certificate: x509.Certificate) -> int | None:
    with suppress(x509.ExtensionNotFound, ValueError):
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        return only_node(names.get_values_for_type(x509.UniformResourceIdentifier))
    return None


def _authority(pem: Pem) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    try:
        certificate = x509.load_pem_x509_certificate(pem.certificate)
        key = serialization.load_pem_private_key(pem.key, None)
    except (ValueError, TypeError):
        raise ConfigError(
            f"{CA_FILE} and {CA_KEY_FILE} are no authority that `iothub cluster init-ca` has made"
        ) from None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
        raise ConfigError(
            f"{CA_KEY_FILE} is not the key of {CA_FILE}; use the pair that `iothub cluster init-ca` has made"
        )
    return certificate, key


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return x509.CertificateBuilder(
        issuer_name=issuer,
        subject_name=subject,
        public_key=key.public_key(),
        serial_number=x509.random_serial_number(),
        not_valid_before=now - _EARLIER,
        not_valid_after=now + timedelta(days=days),
    ).add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)


def _usage(*, is_authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not is_authority,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _host(host: str) -> x509.GeneralName:
    with suppress(ValueError):
        return x509.IPAddress(ipaddress.ip_address(host))
    is_name = host.isascii() and host.replace("-", "").replace(".", "").isalnum()
    if not is_name or len(host) > _NAME_CHARS:
        raise ConfigError(f"--host {host!r}: expected a host name or an address")
    return x509.DNSName(host)


def _pem(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Pem:
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return Pem(certificate.public_bytes(serialization.Encoding.PEM), private)
