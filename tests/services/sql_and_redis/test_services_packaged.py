"""Redis, MariaDB and PostgreSQL as `make services` starts them: they keep what they acknowledged, and are paused and killed whole."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from redis import Redis, RedisError
from sqlalchemy import Connection, create_engine, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from ops.services.hub_settings import sql_urls
from ops.services.places import HOST
from ops.services.services import Services

SHORT_S = 0.5
_BOUNDS = {"mariadb": {"read_timeout": 1}, "postgresql": {}}


@contextmanager
def _connected(services: Services, name: str) -> Iterator[Connection]:
    engine = create_engine(sql_urls(services.ports)[name], poolclass=NullPool, connect_args=_BOUNDS[name])
    with engine.begin() as connection:
        yield connection


@pytest.fixture(params=["mariadb", "postgresql"])
def sql(request: pytest.FixtureRequest) -> tuple[Services, str]:
    return request.getfixturevalue(request.param), request.param


def test_redis_keeps_what_it_acknowledged(redis_server: Services) -> None:
    """Kill -9 right behind the answer; nothing is thrown away for want of memory."""
    key = f"smoke-{uuid.uuid4().hex}"
    with Redis(HOST, redis_server.ports.redis) as client:
        client.set(key, "before")
        assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}

    redis_server.kill("redis")
    redis_server.up("redis")

    with Redis(HOST, redis_server.ports.redis) as client:
        assert client.getdel(key) == b"before"


def test_paused_redis_does_not_answer_and_goes_on(redis_server: Services) -> None:
    """The same process; the connection is taken by the kernel meanwhile."""
    redis_server.pause("redis")
    with Redis(HOST, redis_server.ports.redis, socket_timeout=SHORT_S, retry=None) as client, pytest.raises(RedisError):
        client.ping()

    redis_server.resume("redis")

    with Redis(HOST, redis_server.ports.redis) as client:
        assert client.ping()


def test_sql_server_keeps_what_it_committed(sql: tuple[Services, str]) -> None:
    """Kill -9 right behind the answer."""
    services, name = sql
    table = f"smoke_{uuid.uuid4().hex}"
    with _connected(services, name) as connection:
        connection.execute(text(f"CREATE TABLE {table} (a INTEGER)"))
        connection.execute(text(f"INSERT INTO {table} VALUES (7)"))

    services.kill(name)
    services.up(name)

    with _connected(services, name) as connection:
        assert connection.execute(text(f"SELECT a FROM {table}")).scalar_one() == 7
        connection.execute(text(f"DROP TABLE {table}"))


def test_sql_server_asks_for_the_password(sql: tuple[Services, str]) -> None:
    """So that tests meet what an operator has."""
    services, name = sql
    url = sql_urls(services.ports)[name].replace(":iothub@", ":wrong@")
    engine = create_engine(url, poolclass=NullPool)

    with pytest.raises(DBAPIError), engine.connect():
        pass
