"""Why no connection to Redis was made, and what somebody must correct: one line with the key of the settings.

Knows redis-py's errors and those of TLS; opens nothing. An error without a remedy passes by itself, or means that nobody is there.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import Protocol

from redis import exceptions

from iothub.base.units import Endpoint
from iothub_services.redis.calls import RedisUnavailableError

_SAID_BY_REDIS = (
    exceptions.ResponseError,
    exceptions.AuthenticationError,
    exceptions.AuthorizationError,
    exceptions.BusyLoadingError,
)
_IS_FULL = "max number of clients reached"  # redis-py makes an error of connections of this one
_LET_IN = (
    ("without any password configured", "Redis wants no password: take redis.password_file out, or set requirepass"),
    ("authentication required", "set redis.password_file to the file with its password"),
    ("", "correct redis.username, or the password in the file of redis.password_file"),
)
_REFUSED = (
    ("db index", "correct redis.database"),
    ("cluster mode", "set redis.database to 0"),
    (_IS_FULL, "raise maxclients of Redis"),
    ("loading", "wait until it has loaded its data"),
    ("permission", "give the user of redis.username the right (ACL SETUSER)"),
    ("noauth", "set redis.password_file to the file with its password"),
)
_CERTIFICATE = (
    ("not valid for", "in redis.addresses name the server as its certificate does"),
    ("expired", "renew the certificate of Redis, or look at the clock here"),
    ("", "set redis.ca_file to the authority that signed the certificate of Redis"),
)
_PLAIN = 'the server may speak TLS (redis.security = "tls"), or is no Redis (redis.addresses)'
_NOT_TLS = 'see whether its port speaks TLS: redis.security is "tls" (redis.addresses)'
_OUR_FILES = "correct redis.ca_file, redis.cert_file, redis.key_file: PEM files that fit each other"
_NO_CERTIFICATE = "it may want a certificate: set redis.cert_file and redis.key_file"
_OTHER_CERTIFICATE = "see the log of Redis: it may not take the certificate of redis.cert_file"
_STRANGER = "something else than Redis answers there: correct redis.addresses"


class Options(Protocol):
    """What counts of `WireOptions`."""

    @property
    def is_tls(self) -> bool: ...

    @property
    def cert_file(self) -> object: ...


def not_connected(endpoint: Endpoint, error: Exception, options: Options) -> RedisUnavailableError:
    """Return what an error of redis-py at the first words to a server means."""
    has_said = isinstance(error, _SAID_BY_REDIS) or told(error).lower() == _IS_FULL
    fact = f"Redis at {endpoint}{' refused the hub' if has_said else ''}: {told(error).rstrip('.')}"
    return RedisUnavailableError(fact, remedy=_remedy_said(error) if has_said else _remedy(error, options))


def right_missing(error: Exception) -> str:
    """Return what to do about a call that the user may not make; "" for other refusals."""
    is_right = isinstance(error, exceptions.NoPermissionError) or told(error).startswith("NOPERM")
    return _said(_REFUSED, "permission") if is_right else ""


def told(error: BaseException) -> str:
    """Return redis-py's words on one line."""
    return " ".join(str(error).split()) or type(error).__name__


def _remedy_said(error: Exception) -> str:
    """Of what the server has said: in an error of connections the same words may be a host's, or those of a file."""
    known = _LET_IN if isinstance(error, exceptions.AuthenticationError) else _REFUSED
    return _said(known, told(error).lower())


def _remedy(error: Exception, options: Options) -> str:
    if isinstance(error, exceptions.InvalidResponse):
        return _STRANGER
    of_connection: Callable[[BaseException | None, Options], str] = _of_tls if options.is_tls else _of_plain
    return of_connection(error.__context__, options)


def _of_plain(cause: BaseException | None, _options: Options) -> str:
    """A server of TLS closes the connection of whoever does not speak it."""
    is_closed = cause is None or isinstance(cause, ConnectionResetError | BrokenPipeError)
    return _PLAIN if is_closed else ""


def _of_tls(cause: BaseException | None, options: Options) -> str:
    if isinstance(cause, ssl.SSLCertVerificationError):
        return _said(_CERTIFICATE, told(cause).lower())
    if isinstance(cause, FileNotFoundError | PermissionError | IsADirectoryError):
        return _OUR_FILES
    if isinstance(cause, TimeoutError):
        return _NOT_TLS if "handshake" in str(cause) else ""
    if isinstance(cause, ssl.SSLError):
        return _of_handshake(cause, options)
    is_closed = cause is None or isinstance(cause, ConnectionResetError | BrokenPipeError)
    return _refused_certificate(options) if is_closed else ""


def _of_handshake(cause: ssl.SSLError, options: Options) -> str:
    words = told(cause)
    if "WRONG_VERSION_NUMBER" in words:
        return _NOT_TLS
    is_ours = "X509" in words or "PEM" in words or "KEY_VALUES" in words
    return _OUR_FILES if is_ours else _refused_certificate(options)


def _refused_certificate(options: Options) -> str:
    return _NO_CERTIFICATE if options.cert_file is None else _OTHER_CERTIFICATE


def _said(known: tuple[tuple[str, str], ...], words: str) -> str:
    return next((remedy for mark, remedy in known if mark in words), "")
