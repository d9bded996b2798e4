"""Connections to MySQL and MariaDB through PyMySQL: TLS as the url asks for it, and sessions with limits.

Knows no table. PyMySQL and SQLAlchemy each read a part of the url's parameters for TLS, and together they forget the authority and the server's name:
so they get a context that is made here.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy.engine import URL

from iothub.base.errors import ConfigError
from iothub_tenants.accounts.bounds import SqlBounds
from iothub_tenants.accounts.gate import OUR_URL, RefusedError

_FILES = ("ssl_ca", "ssl_cert", "ssl_key")
_SWITCHES = ("ssl_verify_cert", "ssl_verify_identity")
_WORDS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


@dataclass(frozen=True, slots=True)
class Tls:
    """What the url says. A server that is spoken to by TLS shows a certificate with its own name, unless the url says that it need not."""

    ca: str | None
    cert: str | None
    key: str | None
    is_verified: bool
    has_its_name: bool

    def context(self) -> ssl.SSLContext:
        """Read the files. Raises OSError."""
        made = ssl.create_default_context(cafile=self.ca)
        made.verify_flags &= (
            ~ssl.VERIFY_X509_STRICT
        )  # as PyMySQL: certificates that servers make for themselves are not strict
        made.check_hostname = self.has_its_name
        made.verify_mode = ssl.CERT_REQUIRED if self.is_verified else ssl.CERT_NONE
        if self.cert is not None:
            made.load_cert_chain(self.cert, self.key, password=_refuse_password)
        return made


def tls_of(url: URL) -> tuple[URL, Tls | None]:
    """Return the url without its parameters for TLS, and what they say; None if there are none. Raises ConfigError."""
    parameters = {name: url.query[name] for name in (*_FILES, *_SWITCHES) if name in url.query}
    if not parameters:
        return url, None
    ca, cert, key = (_text(name, parameters[name]) if name in parameters else None for name in _FILES)
    is_verified, has_its_name = (_switch(name, parameters.get(name, "true")) for name in _SWITCHES)
    return url.difference_update_query(parameters), Tls(ca, cert, key, is_verified, is_verified and has_its_name)


def arguments(bounds: SqlBounds) -> dict[str, Any]:
    return {
        "connect_timeout": bounds.connect_timeout_s,
        "read_timeout": bounds.socket_s,
        "write_timeout": bounds.socket_s,
        "charset": "utf8mb4",
    }


def connect(tls: Tls | None, dialect: Any, _record: Any, positional: Any, options: Any) -> Any:
    """Open a connection. Raises PyMySQL's errors; RefusedError for a url with parameters or files that cannot be used."""
    beside = {} if tls is None else {"ssl": _context(tls)}
    try:
        return dialect.connect(*positional, **options, **beside)
    except TypeError as error:
        raise RefusedError(f"{OUR_URL}: PyMySQL cannot use its parameters: {error}") from error


def prepare(bounds: SqlBounds, connection: Any, _entry: Any) -> None:
    """Give a new session its limits. What a mode of the server's would cut off silently is an error."""
    whole = replace(bounds, timeout_s=max(1, int(bounds.timeout_s)))  # seconds, as the server counts
    if "MariaDB" in getattr(connection, "server_version", ""):
        own = f"max_statement_time = {whole.statement_s}, idle_transaction_timeout = {whole.paused_s}"
    else:  # what counters would issue next is not to be a day old
        own = f"max_execution_time = {whole.timeout_s * 1000}, information_schema_stats_expiry = 0"
    mode = "sql_mode = CONCAT(@@sql_mode, ',STRICT_TRANS_TABLES')"
    with connection.cursor() as cursor:
        cursor.execute(f"SET SESSION innodb_lock_wait_timeout = {whole.timeout_s}, {own}, {mode}")


def _context(tls: Tls) -> ssl.SSLContext:
    try:
        return tls.context()
    except OSError as error:
        raise RefusedError(f"{OUR_URL}: a file for TLS cannot be used: {error.strerror or error}") from error
    except ValueError as error:
        raise RefusedError(f"{OUR_URL}: {error}") from error


def _text(name: str, value: str | tuple[str, ...]) -> str:
    if not isinstance(value, str):
        raise ConfigError(f"{OUR_URL}: {name} is given more than once")
    return value


def _switch(name: str, value: str | tuple[str, ...]) -> bool:
    word = _text(name, value).lower()
    if word not in _WORDS:
        raise ConfigError(f"{OUR_URL}: {name} is {word!r}, expected true or false")
    return _WORDS[word]


def _refuse_password() -> str:
    """Called for an encrypted key; without this OpenSSL would ask on the terminal."""
    raise ValueError("the key of ssl_key is encrypted; the hub needs one without a password")
