"""Connections to MySQL and MariaDB: what the url says of TLS is obeyed, and what it says wrongly is refused in words."""

from __future__ import annotations

import ssl
from contextlib import suppress
from pathlib import Path
from typing import Any

import pymysql
import pytest
from sqlalchemy import make_url
from sqlalchemy.exc import OperationalError

from iothub.base.errors import ConfigError
from iothub.testing.certificates import Authority
from iothub_tenants.accounts.bounds import SqlBounds
from iothub_tenants.accounts.servers import server_engine

URL = "mysql+pymysql://u:p@db.example.com/n"


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[ssl.SSLContext]:
    """The contexts of PyMySQL's connections, none of which is opened."""
    found: list[ssl.SSLContext] = []

    def connect(connection: Any) -> None:
        found.append(connection.ctx)
        raise pymysql.err.OperationalError(0, "far enough")

    monkeypatch.setattr(pymysql.connections.Connection, "connect", connect)
    return found


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "db-ca")


def _connect(parameters: str) -> None:
    engine = server_engine(make_url(f"{URL}?{parameters}"), SqlBounds())
    try:
        with suppress(OperationalError), engine.connect():
            pytest.fail("connected")
    finally:
        engine.dispose()


def test_server_must_show_a_certificate_of_the_authority_with_its_own_name(
    authority: Authority, made: list[ssl.SSLContext]
) -> None:
    """As the guide writes it: an authority that is named is the only one that counts."""
    _connect(f"ssl_ca={authority.ca_file}&ssl_verify_cert=true&ssl_verify_identity=true")

    (context,) = made
    assert context.check_hostname
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert [found["subject"] for found in context.get_ca_certs()] == [((("commonName", "db-ca"),),)]


def test_authority_alone_is_enough(authority: Authority, made: list[ssl.SSLContext]) -> None:
    """Who names one wants it to be looked at."""
    _connect(f"ssl_ca={authority.ca_file}")

    assert made[0].check_hostname
    assert made[0].verify_mode is ssl.CERT_REQUIRED


@pytest.mark.parametrize(
    ("parameters", "has_its_name", "mode"),
    [
        ("ssl_verify_identity=true", True, ssl.CERT_REQUIRED),  # of an authority that the system knows
        ("ssl_verify_identity=false&ssl_verify_cert=true", False, ssl.CERT_REQUIRED),
        ("ssl_verify_cert=false", False, ssl.CERT_NONE),
    ],
)
def test_checks_are_those_of_the_url(
    made: list[ssl.SSLContext], parameters: str, has_its_name: bool, mode: ssl.VerifyMode
) -> None:
    """Whoever wants fewer has to say so."""
    _connect(parameters)

    assert (made[0].check_hostname, made[0].verify_mode) == (has_its_name, mode)


def test_own_certificate_is_shown(authority: Authority, made: list[ssl.SSLContext]) -> None:
    """To a server that asks for one."""
    pair = authority.issue("hub")

    _connect(f"ssl_ca={authority.ca_file}&ssl_cert={pair.cert_file}&ssl_key={pair.key_file}")

    assert len(made) == 1


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ("ssl_ca=/no/such.pem", "a file for TLS cannot be used: No such file"),
        ("ssl_verify_cert=perhaps", "ssl_verify_cert is 'perhaps', expected true or false"),
        ("ssl_ca=/a&ssl_ca=/b", "ssl_ca is given more than once"),
        ("ssl_verify_idendity=true", "unexpected keyword argument 'ssl_verify_idendity'"),
    ],
)
def test_parameter_that_cannot_be_used_is_refused_in_words(parameters: str, message: str) -> None:
    """Not ignored: somebody relies on it."""
    with pytest.raises(ConfigError, match=message):
        _connect(parameters)
