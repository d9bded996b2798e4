"""Certificates for tests: an authority, and leaves with any subject.

Knows no listener; everything is written as PEM files.
"""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

DAY = datetime.timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Pair:
    """Paths of a certificate and its key."""

    cert_file: str
    key_file: str


class Authority:
    """A certificate authority in a directory."""

    def __init__(self, directory: Path, name: str = "authority") -> None:
        self._directory = directory
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(self._name, self._name, self._key).add_extension(
            x509.BasicConstraints(ca=True, path_length=0), critical=True
        )
        self._certificate = builder.sign(self._key, hashes.SHA256())
        self.ca_file = str(directory / f"{name}.pem")
        Path(self.ca_file).write_bytes(self._certificate.public_bytes(serialization.Encoding.PEM))

    def issue(
        self,
        file: str,
        common_names: tuple[str, ...] = ("localhost",),
        *,
        subject: x509.Name | None = None,
        is_expired: bool = False,
    ) -> Pair:
        """Write `file`.pem and `file`.key; valid for localhost and the loopback addresses. `subject` replaces the common names."""
        key = ec.generate_private_key(ec.SECP256R1())
        if subject is None:
            subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name) for name in common_names])
        names: list[x509.GeneralName] = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        builder = _builder(subject, self._name, key, is_expired=is_expired)
        certificate = builder.add_extension(x509.SubjectAlternativeName(names), critical=False).sign(
            self._key, hashes.SHA256()
        )
        pair = Pair(str(self._directory / f"{file}.pem"), str(self._directory / f"{file}.key"))
        Path(pair.cert_file).write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        Path(pair.key_file).write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return pair

    def revoke(self, pair: Pair) -> None:
        """Add a revocation list with this certificate to the authority's file."""
        certificate = x509.load_pem_x509_certificate(Path(pair.cert_file).read_bytes())
        now = datetime.datetime.now(datetime.UTC)
        revoked = x509.RevokedCertificateBuilder(certificate.serial_number, now - DAY).build()
        revocations = (
            x509.CertificateRevocationListBuilder(self._name, now - DAY, now + DAY)
            .add_revoked_certificate(revoked)
            .sign(self._key, hashes.SHA256())
        )
        with Path(self.ca_file).open("ab") as file:
            file.write(revocations.public_bytes(serialization.Encoding.PEM))


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, *, is_expired: bool = False
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return x509.CertificateBuilder(
        issuer_name=issuer,
        subject_name=subject,
        public_key=key.public_key(),
        serial_number=x509.random_serial_number(),
        not_valid_before=now - 30 * DAY,
        not_valid_after=now - DAY if is_expired else now + 30 * DAY,
    )
