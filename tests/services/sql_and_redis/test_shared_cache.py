"""The cache of accounts in the real Redis: storms without SQL, and SQL without Redis."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from iothub.config.sections import Redis
from iothub_services.auth.authenticator import Authenticated, Refusal
from iothub_services.redis import from_settings
from iothub_tenants.accounts import devices
from iothub_tenants.accounts.store import AccountStore
from ops.services.services import Services
from tests.support.hubs.redis_cache import TENANT, TIMEOUT_S, accounts_with, hubs, settings_of
from tests.support.waiting import until

DEVICES = 5_000
NAMES = [f"dev{number}" for number in range(DEVICES)]
ONE_BY_ONE = 250  # devices that ask SQL at the same time


@pytest.fixture
def store(tmp_path: Path) -> Iterator[AccountStore]:
    made = accounts_with(tmp_path / "accounts.db", DEVICES)
    yield made
    made.close()


@pytest.fixture
def redis(redis_server: Services) -> Redis:
    return settings_of(redis_server.ports.redis)


def test_storm_at_a_cold_hub_asks_no_sql(store: AccountStore, redis_server: Services) -> None:
    """A warm Redis lets a hub in that was just started; a wrong secret stays wrong."""
    patient = settings_of(redis_server.ports.redis, 5.0)  # a busy machine's stalls are not what is asked for here
    with hubs(store, patient) as (warm, cold):
        for begin in range(0, DEVICES, ONE_BY_ONE):
            warm.connect(*NAMES[begin : begin + ONE_BY_ONE])

        answers = cold.connect(*NAMES)
        wrong = cold.connect("dev1", secret="guess")
        unknown = cold.connect("nobody")

        assert all(isinstance(answer, Authenticated) for answer in answers)
        assert isinstance(wrong[0], Refusal)
        assert isinstance(unknown[0], Refusal)
        assert dict(cold.accounts.asked) == {"device": 1}  # `nobody`, whom nobody had asked for
        assert warm.accounts.asked["device"] == DEVICES


def test_revoked_device_is_kept_out_whatever_redis_has(store: AccountStore, redis: Redis) -> None:
    """Also when its old record is put back."""
    tool = from_settings.blocking(redis)
    with hubs(store, redis) as (warm, cold):
        warm.connect("dev1", "dev2")
        (key,) = tool.run("KEYS", f"{redis.prefix}:*:dev1")  # type: ignore[misc, union-attr]
        before = tool.run("GET", key)  # type: ignore[arg-type]
        devices.disable(store, TENANT, "dev1")
        cold.look()

        assert isinstance(cold.connect("dev1")[0], Refusal)
        tool.run("SET", key, before)  # type: ignore[arg-type]
        cold.authenticator.invalidate(1, None)  # a memory as cold as at the start
        assert isinstance(cold.connect("dev1")[0], Refusal)
        assert isinstance(cold.connect("dev2")[0], Authenticated)
    tool.close()


def test_stall_in_a_storm_costs_one_time_out_for_all(store: AccountStore, redis: Redis, redis_server: Services) -> None:
    """SQL answers; nobody is kept out, and nobody is let in who should not be."""
    with hubs(store, redis) as (warm, cold):
        warm.connect(*NAMES[:250])
        redis_server.pause("redis")
        try:
            began = time.monotonic()
            first = cold.connect(*NAMES[:250])
            second = cold.connect(*NAMES[250:500])
            wrong = cold.connect("dev7", secret="guess")
            took_s = time.monotonic() - began
        finally:
            redis_server.resume("redis")

        assert all(isinstance(answer, Authenticated) for answer in first + second)
        assert isinstance(wrong[0], Refusal)
        assert took_s < 10 * TIMEOUT_S + 5
        client = cold.client
        assert client is not None
        until(lambda: not client.is_degraded, "Redis is used again")


def test_flushed_redis_fills_again(store: AccountStore, redis_server: Services) -> None:
    redis = settings_of(redis_server.ports.redis, 5.0)  # a busy machine's stalls are not what is asked for here
    tool = from_settings.blocking(redis)
    with hubs(store, redis) as (warm, cold):
        warm.connect("dev1")
        for key in tool.run("KEYS", f"{redis.prefix}:*"):  # type: ignore[union-attr]
            tool.run("UNLINK", key)  # type: ignore[arg-type]

        assert isinstance(cold.connect("dev1")[0], Authenticated)
        assert cold.accounts.asked == {"tenant": 1, "device": 1}
        until(lambda: tool.run("KEYS", f"{redis.prefix}:*:dev1") != [], "the entry is there again")
    tool.close()
