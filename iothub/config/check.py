"""Checks a configuration before the start: is there a listener, and can the files that it names be used?

Opens no port. Each message names the setting to change.
"""

from __future__ import annotations

import ssl
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from iothub.base.errors import ConfigError, ErrorList
from iothub.config.loader import Examined, Loaded, examine
from iothub.config.sections import Cluster, Config, Listeners, TlsListener, kind_of


@dataclass(frozen=True, slots=True)
class Checked:
    """A configuration with which a hub can start. `warnings`: such as of a secret that others can read."""

    loaded: Loaded
    warnings: list[str]


def load_checked(
    *, file: Path | None = None, environment: Mapping[str, str] | None = None, flags: Sequence[str] = ()
) -> Checked:
    """Read and check all sources (`iothub.config.loader.examine`) and the files that they name.

    Raises:
        ConfigError: The first mistake; its `details` name the others.
        UnavailableError: The configuration file exists but cannot be read.
    """
    examined = examine(file=file, environment=environment, flags=flags)
    warnings = _check_files(examined)
    examined.errors.raise_any()
    return Checked(examined.loaded, warnings)


def check_start(config: Config) -> list[str]:
    """Check the files that a valid configuration names, and return warnings.

    Raises:
        ConfigError: No listener is on, a file is missing or unusable, or key and certificate do not match. `details`: further ones.
    """
    examined = Examined(Loaded(config, {}, None), ErrorList(), frozenset())
    warnings = _check_files(examined)
    examined.errors.raise_any()
    return warnings


def _check_files(examined: Examined) -> list[str]:
    """Gather mistakes; return warnings. What follows from a setting whose value is not known is left out."""
    config, files = examined.loaded.config, _Files(examined)
    if examined.is_known("listeners"):
        with examined.errors.gathering():
            _require_listener(config.listeners)
    for name, listener in config.listeners.by_name().items():
        if isinstance(listener, TlsListener) and listener.port is not None:
            files.check_listener(name, listener)
    files.check("auth", {"pepper_file": config.auth.pepper_file})
    files.check("sql", {}, {"url_file": config.sql.url_file})  # it has a password
    if (kafka := config.kafka).brokers:
        secrets = {"key_file": kafka.key_file, "sasl_password_file": kafka.sasl_password_file}
        files.check("kafka", {"ca_file": kafka.ca_file, "cert_file": kafka.cert_file}, secrets)
    if (redis := config.redis).addresses:
        secrets = {"key_file": redis.key_file, "password_file": redis.password_file}
        files.check("redis", {"ca_file": redis.ca_file, "cert_file": redis.cert_file}, secrets)
    if (oidc := config.admin.oidc).issuer:
        files.check("admin.oidc", {}, {"client_secret_file": oidc.client_secret_file})
    if examined.is_known("cluster.listen", "cluster.insecure") and _has_certificates(cluster := config.cluster):
        names = {"ca_file": cluster.ca_file, "certificate_file": cluster.certificate_file}
        files.check("cluster", names, {"key_file": cluster.key_file})
    return files.warnings


def _has_certificates(cluster: Cluster) -> bool:
    """Whether links use files. Only those that are named are looked at here; `iothub.peers.certificates.load` sees if they fit each other."""
    return bool(cluster.listen) and not cluster.insecure and not cluster.listen.startswith("unix:")


def _require_listener(listeners: Listeners) -> None:
    if all(listener.port is None for listener in listeners.by_name().values()):
        raise ConfigError(
            "no listener has a port, so no client can connect: set listeners.tcp.port, listeners.tls.port, "
            "listeners.ws.port or listeners.wss.port"
        )


class _Files:
    """The files of one configuration: gathers what is wrong with each, whatever is wrong with others. `warnings`: of secrets that others can read."""

    def __init__(self, examined: Examined) -> None:
        self.warnings: list[str] = []
        self._examined = examined

    def check(
        self, section: str, files: Mapping[str, Path | None], secrets: Mapping[str, Path | None] | None = None
    ) -> None:
        """Check that each file can be read."""
        for word, file in files.items():
            self._usable(section, word, file)
        for word, file in (secrets or {}).items():
            self._usable(section, word, file, is_secret=True)

    def check_listener(self, name: str, listener: TlsListener) -> None:
        """Check that certificate and key fit each other, and that there are authorities in their file."""
        section, gathering = f"listeners.{name}", self._examined.errors.gathering
        cert = self._usable(section, "cert_file", listener.cert_file)
        key = self._usable(section, "key_file", listener.key_file, is_secret=True)
        if cert is not None and key is not None:
            with gathering():
                _check_pair(section, cert, key)
        authorities = self._usable(section, "client_ca_file", listener.client_ca_file)
        if authorities is not None:
            with gathering():
                _check_authorities(f"{section}.client_ca_file", authorities)

    def _usable(self, section: str, word: str, file: Path | None, *, is_secret: bool = False) -> Path | None:
        """Return a file that is named and can be read; None: nothing more can be said of it."""
        name = f"{section}.{word}"
        if file is None or not self._examined.is_known(name, f"{_of_kind(section)}.{word}"):
            return None
        try:
            with file.open("rb"):
                mode = stat.S_IMODE(file.stat().st_mode)
        except OSError as error:
            self._examined.errors.add(ConfigError(f"{name}: {file}: {error.strerror}"))
            return None
        if is_secret and mode & 0o077:
            self.warnings.append(f"{name}: {file} can be read by others; run `chmod 600 {file}`")
        return file


def _of_kind(section: str) -> str:
    """Return the section from which a named listener has what it does not say."""
    group, dot, name = section.partition(".")
    return f"{group}.{kind_of(name)}" if dot else section


def _check_pair(name: str, cert: Path, key: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(cert, key, password=_refuse_password)
    except ssl.SSLError as error:
        why = "they do not match" if "MISMATCH" in (error.reason or "") else "expected PEM files"
        raise ConfigError(f"{name}: cannot use certificate {cert} with key {key}: {why}") from None
    except ValueError:
        raise ConfigError(f"{name}.key_file: {key} is encrypted; the hub needs a key without a password") from None


def _check_authorities(name: str, file: Path) -> None:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(cafile=file)
    except ssl.SSLError:
        raise ConfigError(f"{name}: {file} contains no certificate; expected a PEM file") from None


def _refuse_password() -> str:
    """Called by OpenSSL for an encrypted key; without this it would ask on the terminal."""
    raise ValueError
