"""Engines for SQL servers are bounded, and what their drivers raise is told apart: gone, refused, in another's way."""

from __future__ import annotations

import psycopg
import pymysql
import pytest
from sqlalchemy import make_url
from sqlalchemy.exc import DBAPIError, OperationalError

from iothub_tenants.accounts.bounds import SqlBounds
from iothub_tenants.accounts.servers import (
    cause_of,
    is_gone,
    is_refused,
    may_be_repeated,
    server_engine,
)

BOUNDS = SqlBounds(connections=3, connect_timeout_s=4, timeout_s=7, recycle_s=60)


def _error(orig: Exception, *, is_connecting: bool, is_invalidated: bool = False) -> DBAPIError:
    statement = None if is_connecting else "SELECT 1"
    return OperationalError(statement, None, orig, connection_invalidated=is_invalidated)


def _mysql(code: int, text: str = "words") -> pymysql.err.OperationalError:
    return pymysql.err.OperationalError(code, text)


@pytest.mark.parametrize("url", ["mysql+pymysql://u:secret@host/n", "postgresql+psycopg://u:secret@host/n"])
def test_engine_has_a_bounded_pool_and_shows_no_password(url: str) -> None:
    """Also where somebody prints it."""
    engine = server_engine(make_url(url), BOUNDS)

    assert engine.pool.size() == 3  # type: ignore[attr-defined]
    assert "secret" not in repr(engine)
    engine.dispose()


def test_server_that_is_not_there_is_gone() -> None:
    """Whether it was never reached or went away in the middle."""
    assert is_gone(_error(_mysql(2003), is_connecting=True))
    assert is_gone(_error(psycopg.OperationalError("connection failed: refused"), is_connecting=True))
    assert is_gone(_error(_mysql(2013), is_connecting=False, is_invalidated=True))
    assert not is_gone(_error(_mysql(1205), is_connecting=False))


@pytest.mark.parametrize(
    "orig",
    [_mysql(1045), _mysql(1049), psycopg.OperationalError('FATAL: password authentication failed for user "x"')],
    ids=["password", "database", "postgresql"],
)
def test_server_that_lets_us_not_in_is_not_waited_for(orig: Exception) -> None:
    """Somebody has to correct the url."""
    error = _error(orig, is_connecting=True)

    assert is_refused(error)
    assert not is_gone(error)


@pytest.mark.parametrize(
    "orig",
    [
        _mysql(2026, "SSL is required but the server doesn't support it"),
        _mysql(2003, "Can't connect to MySQL server ([SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed)"),
        _mysql(3159, "Connections using insecure transport are prohibited"),
        psycopg.OperationalError("connection failed: SSL error: certificate verify failed"),
        psycopg.OperationalError("connection failed: server does not support SSL, but SSL was required"),
        psycopg.OperationalError('could not read root certificate file "x": no certificate or crl found'),
    ],
    ids=lambda error: str(error.args[-1])[:30],
)
def test_disagreement_on_tls_is_not_waited_for(orig: Exception) -> None:
    """The server is there: somebody has to correct the parameters of the url."""
    error = _error(orig, is_connecting=True)

    assert is_refused(error)
    assert not is_gone(error)


def test_statement_is_repeated_when_it_was_in_anothers_way_or_its_connection_was_dead() -> None:
    """Not when there was no connection at all: that would double the wait."""
    assert may_be_repeated(_error(_mysql(1213), is_connecting=False))
    assert may_be_repeated(_error(psycopg.errors.SerializationFailure("x"), is_connecting=False))
    assert may_be_repeated(_error(psycopg.errors.LockNotAvailable("x"), is_connecting=False))
    assert may_be_repeated(_error(_mysql(2006), is_connecting=False, is_invalidated=True))
    assert not may_be_repeated(_error(_mysql(2013), is_connecting=True, is_invalidated=True))
    assert not may_be_repeated(_error(_mysql(1146), is_connecting=False))


def test_cause_is_the_first_line_of_what_the_driver_says() -> None:
    """Not the tuple that PyMySQL makes of it."""
    assert cause_of(_error(_mysql(2003, "Can't connect"), is_connecting=True)) == "Can't connect"
    assert cause_of(_error(psycopg.OperationalError("refused\nIs it running?"), is_connecting=True)) == "refused"
