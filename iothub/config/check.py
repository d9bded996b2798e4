"""Checks a configuration before the start: is there a listener, and can the files that it names be used?

Opens no port. Each message names the setting to change.
"""

from __future__ import annotations

import ssl
import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from iothub.base.errors import ConfigError, ErrorList
from iothub.config.loader import Examined, Loaded, examine
from iothub.config.sections import Cluster, Config, Kafka, Listeners, Redis, TlsListener, kind_of


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
    config, warnings = examined.loaded.config, list[str]()
    files: list[tuple[str, Callable[[], list[str]]]] = [
        ("listeners", partial(_require_listener, config.listeners)),
        *(
            (f"listeners.{kind_of(name)}", partial(_check_tls, f"listeners.{name}", listener))
            for name, listener in config.listeners.by_name().items()
            if isinstance(listener, TlsListener)
        ),
        ("auth.pepper_file", partial(_check_client, "auth", {"pepper_file": config.auth.pepper_file}, {})),
        ("sql.url_file", partial(_check_client, "sql", {}, {"url_file": config.sql.url_file})),  # it has a password
        ("kafka", partial(_check_kafka, config.kafka)),
        ("redis", partial(_check_redis, config.redis)),
        ("cluster", partial(_check_cluster, config.cluster)),
    ]
    for name, check in files:
        if examined.is_known(name):
            with examined.errors.gathering():
                warnings += check()
    return warnings


def _require_listener(listeners: Listeners) -> list[str]:
    if all(listener.port is None for listener in listeners.by_name().values()):
        raise ConfigError(
            "no listener has a port, so no client can connect: set listeners.tcp.port, listeners.tls.port, "
            "listeners.ws.port or listeners.wss.port"
        )
    return []


def _check_kafka(kafka: Kafka) -> list[str]:
    if not kafka.brokers:
        return []
    files = {"ca_file": kafka.ca_file, "cert_file": kafka.cert_file}
    secrets = {"key_file": kafka.key_file, "sasl_password_file": kafka.sasl_password_file}
    return _check_client("kafka", files, secrets)


def _check_redis(redis: Redis) -> list[str]:
    if not redis.addresses:
        return []
    files = {"ca_file": redis.ca_file, "cert_file": redis.cert_file}
    return _check_client("redis", files, {"key_file": redis.key_file, "password_file": redis.password_file})


def _check_cluster(cluster: Cluster) -> list[str]:
    """Those that are named. Whether they fit each other and the node is seen at the start, with the default ones."""
    if not cluster.listen or cluster.insecure or cluster.listen.startswith("unix:"):
        return []
    files = {"ca_file": cluster.ca_file, "certificate_file": cluster.certificate_file}
    return _check_client("cluster", files, {"key_file": cluster.key_file})


def _check_client(section: str, files: Mapping[str, Path | None], secrets: Mapping[str, Path | None]) -> list[str]:
    """Check that files can be read. Warns of secrets that others can read."""
    errors = ErrorList()
    for word, file in {**files, **secrets}.items():
        if file is not None:
            with errors.gathering():
                _require_file(f"{section}.{word}", file)
    errors.raise_any()
    return [
        f"{section}.{word}: {file} can be read by others; run `chmod 600 {file}`"
        for word, file in secrets.items()
        if file is not None and stat.S_IMODE(file.stat().st_mode) & 0o077
    ]


def _check_tls(name: str, listener: TlsListener) -> list[str]:
    cert, key = listener.cert_file, listener.key_file
    if listener.port is None or cert is None or key is None:
        return []  # off, or refused by `iothub.config.loader`
    warnings = _check_client(name, {"cert_file": cert}, {"key_file": key})
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(cert, key, password=_refuse_password)
    except ssl.SSLError as error:
        why = "they do not match" if "MISMATCH" in (error.reason or "") else "expected PEM files"
        raise ConfigError(f"{name}: cannot use certificate {cert} with key {key}: {why}") from None
    except ValueError:
        raise ConfigError(f"{name}.key_file: {key} is encrypted; the hub needs a key without a password") from None
    if listener.client_ca_file is not None:
        _check_authorities(f"{name}.client_ca_file", listener.client_ca_file)
    return warnings


def _check_authorities(name: str, file: Path) -> None:
    _require_file(name, file)
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(cafile=file)
    except ssl.SSLError:
        raise ConfigError(f"{name}: {file} contains no certificate; expected a PEM file") from None


def _require_file(name: str, file: Path) -> None:
    try:
        with file.open("rb"):
            return
    except OSError as error:
        raise ConfigError(f"{name}: {file}: {error.strerror}") from None


def _refuse_password() -> str:
    """Called by OpenSSL for an encrypted key; without this it would ask on the terminal."""
    raise ValueError
