"""`iothub cert`: a self-signed certificate to try TLS with.

Knows no authority and no renewal: for others to trust a hub, get a certificate from an authority.
"""

from __future__ import annotations

import ipaddress
import shlex
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import click
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from iothub.base.errors import ConfigError, UnavailableError
from iothub.cli.app import App, noun, verb
from iothub.cli.files import NamedPath, write_new_file
from iothub.cli.numbers import WholeNumber

command = noun("cert", "Certificates for the listeners tls and wss.")
ALWAYS = ("localhost", "127.0.0.1", "::1")
_NAME_LIMIT = 253


@verb(command, "self-signed")
@click.argument("directory", type=NamedPath(), required=False)
@click.option("--out", type=NamedPath(), help="The same as DIRECTORY.")
@click.option("--name", "names", multiple=True, help="Another host name or address (repeatable).")
@click.option("--days", type=WholeNumber(1, 3650), default=365, show_default=True, help="Days of validity.")
@click.option("--force", "is_forced", is_flag=True, help="Replace existing files.")
def self_signed(
    app: App, directory: Path | None, out: Path | None, names: tuple[str, ...], days: int, is_forced: bool
) -> None:
    """Create DIRECTORY/cert.pem and DIRECTORY/key.pem, valid for localhost and the given names.

    Clients trust cert.pem as their authority (mosquitto_sub --cafile cert.pem).

    Examples:
      iothub cert self-signed ./certs
      iothub cert self-signed ./certs --name hub.example.com --name 192.0.2.7
    """
    target = out or directory
    if target is None or (out is not None and directory is not None and out != directory):
        raise ConfigError("expected one directory: iothub cert self-signed DIRECTORY")
    certificate, key = make_self_signed((*ALWAYS, *names), days)
    cert_file, key_file = target / "cert.pem", target / "key.pem"
    try:
        target.mkdir(parents=True, exist_ok=True)
        write_new_file(key_file, key, 0o600, is_forced=is_forced)
        write_new_file(cert_file, certificate, 0o644, is_forced=is_forced)
    except OSError as error:
        raise UnavailableError(f"{error.filename}: cannot be written: {error.strerror}") from None
    settings = ("listeners.tls.port=8883", f"listeners.tls.cert_file={cert_file}", f"listeners.tls.key_file={key_file}")
    app.done(
        f"wrote {cert_file} and {key_file}\nnext: iothub serve "
        + " ".join(f"--set {shlex.quote(setting)}" for setting in settings),
        {"name": "self-signed", "cert_file": str(cert_file), "key_file": str(key_file), "names": [*ALWAYS, *names]},
    )


def make_self_signed(names: tuple[str, ...], days: int) -> tuple[bytes, bytes]:
    """Return certificate and key in PEM, valid for these host names and addresses.

    Raises:
        ConfigError: A name is neither a host name nor an address.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "iothub self-signed")])
    now = datetime.now(UTC)  # noqa: DTZ005, RUF100 - the calendar of the certificate, not a measured time
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + timedelta(days=days))
        .add_extension(
            x509.SubjectAlternativeName([_general_name(name) for name in dict.fromkeys(names)]), critical=False
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(identifier, critical=False)
    )
    certificate = builder.sign(key, hashes.SHA256())
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return certificate.public_bytes(serialization.Encoding.PEM), private


def _general_name(name: str) -> x509.GeneralName:
    with suppress(ValueError):
        return x509.IPAddress(ipaddress.ip_address(name))
    is_host = name.isascii() and name.replace("-", "").replace(".", "").replace("*", "").isalnum()
    if not is_host or len(name) > _NAME_LIMIT:
        raise ConfigError(f"--name {name!r}: expected a host name or an address")
    return x509.DNSName(name)
