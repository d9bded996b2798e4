"""Our client on the real Redis: pipelines, scripts, and a server that stalls, dies, forgets, or becomes a replica."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from iothub.base.clock import SystemClock
from iothub.base.errors import BackendError
from iothub.base.units import Endpoint
from iothub.config.sections import Redis
from iothub_services.redis import from_settings
from iothub_services.redis.blocking import BlockingRedis
from iothub_services.redis.calls import RedisUnavailableError, Script, command, script_call
from ops.services.services import Services
from tests.support.hubs.redis_cache import TIMEOUT_S, CachedHub, accounts_with, hubs, settings_of
from tests.support.waiting import PATIENCE_S, until

APPEND = Script("return redis.call('RPUSH', KEYS[1], ARGV[1])")
AT_ONCE_S = TIMEOUT_S / 2


@pytest.fixture
def redis(redis_server: Services) -> Iterator[Redis]:
    settings = settings_of(redis_server.ports.redis)
    yield settings
    redis_server.up("redis")
    tool = from_settings.blocking(replace(settings, timeout_s=PATIENCE_S))
    if keys := tool.run("KEYS", f"{settings.prefix}*"):
        tool.run("UNLINK", *keys)  # type: ignore[misc]
    tool.close()


@pytest.fixture
def tool(redis: Redis) -> Iterator[BlockingRedis]:
    made = from_settings.blocking(redis, "iothub-test")
    yield made
    made.close()


@pytest.fixture
def hub(redis: Redis, tmp_path) -> Iterator[CachedHub]:  # type: ignore[no-untyped-def]
    with hubs(accounts_with(tmp_path / "accounts.db", 0), redis, 1) as (made,):
        yield made


def test_calls_at_once_share_pipelines(redis: Redis, tmp_path: Path) -> None:
    """A thousand answers, each its own. With a time-out for machines that do much else."""
    keys = [f"{redis.prefix}:{number}" for number in range(1000)]
    with hubs(accounts_with(tmp_path / "accounts.db", 0), replace(redis, timeout_s=10.0), 1) as (hub,):
        client = hub.client
        assert client is not None
        hub.gather([partial(client.run, "SET", key, key) for key in keys])

        answers = hub.gather([partial(client.run, "GET", key) for key in keys])

    assert answers == [key.encode() for key in keys]


def test_script_survives_a_flush_of_scripts(tool: BlockingRedis, redis: Redis) -> None:
    key = f"{redis.prefix}:list"
    assert tool.run_many([script_call(APPEND, [key], "a")]) == [1]
    tool.run("SCRIPT", "FLUSH")

    assert tool.run_many([script_call(APPEND, [key], "b")]) == [2]
    assert tool.run("LRANGE", key, 0, -1) == [b"a", b"b"]


def test_stalled_server_costs_one_time_out_and_is_used_again(hub: CachedHub, redis_server: Services) -> None:
    """Paused for longer than the time-out: whoever comes then does not wait; nobody restarts anything."""
    client = hub.client
    assert client is not None
    redis_server.pause("redis")
    try:
        hub.gather([lambda: client.run("PING")])
        began = time.monotonic()
        answers = hub.gather([lambda: client.run("PING") for _ in range(100)])
        took_s = time.monotonic() - began
    finally:
        redis_server.resume("redis")

    assert all(isinstance(answer.value, RedisUnavailableError) for answer in answers)
    assert took_s < AT_ONCE_S
    until(lambda: not client.is_degraded, "the client uses Redis again")
    assert hub.gather([lambda: client.run("PING")]) == [b"PONG"]
    assert [bool(state) for state in hub.states] == [True, False]


def test_killed_server_is_used_again_when_it_is_back(hub: CachedHub, redis_server: Services) -> None:
    """Noticed without anybody asking."""
    client = hub.client
    assert client is not None
    redis_server.kill("redis")
    until(lambda: client.is_degraded, "the client notices")
    redis_server.up("redis")

    until(lambda: not client.is_degraded, "the client uses Redis again")
    assert hub.gather([lambda: client.run("PING")]) == [b"PONG"]


def test_connection_that_redis_closes_fails_nobody(tool: BlockingRedis, redis: Redis) -> None:
    """CLIENT KILL, or its setting `timeout`."""
    other = from_settings.blocking(redis)
    tool.run("SET", f"{redis.prefix}:a", "x")
    other.run("CLIENT", "KILL", "SKIPME", "yes")

    assert tool.run("GET", f"{redis.prefix}:a") == b"x"
    other.close()


def test_server_that_becomes_a_replica_is_left_until_it_is_master_again(redis_server: Services, redis: Redis) -> None:
    """Fail-over with two addresses: the old master's READONLY, then nobody, then the new one."""
    settings = settings_of(redis_server.ports.redis, TIMEOUT_S, Endpoint("localhost", redis_server.ports.redis))
    clock = SystemClock()
    hub = BlockingRedis(from_settings.link(settings), clock)
    operator = from_settings.blocking(redis)
    hub.run("SET", f"{redis.prefix}:a", "x")
    operator.run("REPLICAOF", "127.0.0.1", 1)
    try:
        with pytest.raises(BackendError, match="read only replica") as caught:
            hub.run("SET", f"{redis.prefix}:a", "y")
        with pytest.raises(BackendError, match="is a replica, expected the master"):
            hub.run("SET", f"{redis.prefix}:a", "y")
    finally:
        operator.run("REPLICAOF", "NO", "ONE")

    assert caught.value.retryable
    assert not caught.value.is_written
    until(lambda: hub.run_many([command("SET", f"{redis.prefix}:a", "z")]) == [b"OK"], "the master is found")
    hub.close()
    operator.close()


def test_wrong_password_is_told_without_it(redis_server: Services, tmp_path) -> None:  # type: ignore[no-untyped-def]
    """One line, with the address."""
    file = tmp_path / "password"
    file.write_text("hidden-word")
    settings = Redis(addresses=(Endpoint("127.0.0.1", redis_server.ports.redis),), password_file=file)

    with pytest.raises(RedisUnavailableError, match=r"^Redis at 127\.0\.0\.1") as caught:
        from_settings.blocking(settings).run("PING")

    assert "hidden-word" not in str(caught.value)
