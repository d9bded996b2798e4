"""Checks a configuration before the start: is there a listener, and can the files that it names be used?

Opens no port. Each message names the setting to change.
"""

from __future__ import annotations

import ssl
import stat
from collections.abc import Mapping
from pathlib import Path

from iothub.base.errors import ConfigError
from iothub.config.sections import Config, Kafka, Listeners, Redis, TlsListener


def check_start(config: Config) -> list[str]:
    """Return warnings, such as about a secret that others can read.

    Raises:
        ConfigError: No listener is on, a file is missing or unusable, or key and certificate do not match.
    """
    _require_listener(config.listeners)
    warnings: list[str] = []
    for name, listener in (("listeners.tls", config.listeners.tls), ("listeners.wss", config.listeners.wss)):
        if listener.port is not None:
            warnings += _check_tls(name, listener)
    if config.auth.pepper_file is not None:
        _require_file("auth.pepper_file", config.auth.pepper_file)
    warnings += _check_client("sql", {}, {"url_file": config.sql.url_file})  # it has a password
    if config.kafka.brokers:
        warnings += _check_kafka(config.kafka)
    if config.redis.addresses:
        warnings += _check_redis(config.redis)
    return warnings


def _require_listener(listeners: Listeners) -> None:
    each_listener = (listeners.tcp, listeners.tls, listeners.ws, listeners.wss)
    if all(listener.port is None for listener in each_listener):
        raise ConfigError(
            "no listener has a port, so no client can connect: set listeners.tcp.port, listeners.tls.port, "
            "listeners.ws.port or listeners.wss.port"
        )


def _check_kafka(kafka: Kafka) -> list[str]:
    files = {"ca_file": kafka.ca_file, "cert_file": kafka.cert_file}
    secrets = {"key_file": kafka.key_file, "sasl_password_file": kafka.sasl_password_file}
    return _check_client("kafka", files, secrets)


def _check_redis(redis: Redis) -> list[str]:
    files = {"ca_file": redis.ca_file, "cert_file": redis.cert_file}
    return _check_client("redis", files, {"key_file": redis.key_file, "password_file": redis.password_file})


def _check_client(section: str, files: Mapping[str, Path | None], secrets: Mapping[str, Path | None]) -> list[str]:
    """Check the files of a client connection. Warns of secrets that others can read."""
    for word, file in {**files, **secrets}.items():
        if file is not None:
            _require_file(f"{section}.{word}", file)
    return [
        f"{section}.{word}: {file} can be read by others; run `chmod 600 {file}`"
        for word, file in secrets.items()
        if file is not None and stat.S_IMODE(file.stat().st_mode) & 0o077
    ]


def _check_tls(name: str, listener: TlsListener) -> list[str]:
    cert, key = listener.cert_file, listener.key_file
    assert cert is not None  # noqa: S101 - `iothub.config.loader` refuses a TLS listener without them
    assert key is not None  # noqa: S101
    _require_file(f"{name}.cert_file", cert)
    _require_file(f"{name}.key_file", key)
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
    if stat.S_IMODE(key.stat().st_mode) & 0o077:
        return [f"{name}.key_file: {key} can be read by others; run `chmod 600 {key}`"]
    return []


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
