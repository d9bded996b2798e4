"""Settings that choose Redis for queues: what must be given with them."""

from __future__ import annotations

import pytest

from iothub.base.errors import ConfigError
from iothub.config.loader import load, needs_on_redis
from iothub.config.sections import Config


def loaded(*flags: str) -> Config:
    return load(file=None, environment={}, flags=flags).config


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (("queues.driver=redis",), 'queues.driver = "redis" needs redis.addresses, such as'),
        (
            ('queues.choices=[{driver = "redis", tenants = ["a1"]}]',),
            'queues.choices: in table 1: driver = "redis" needs redis.addresses',
        ),
        (("queues.redis_durability=later",), "expected one of disk, memory"),
    ],
)
def test_settings_that_do_not_fit_are_refused(flags: tuple[str, ...], expected: str) -> None:
    """With the setting that asks for the other one."""
    with pytest.raises(ConfigError) as caught:
        loaded(*flags)

    assert expected in str(caught.value)


def test_redis_alone_chooses_nothing() -> None:
    """A cache on Redis is no queue there."""
    assert needs_on_redis(loaded("redis.addresses=localhost:6379")) == []
    chosen = loaded("redis.addresses=localhost:6379", "queues.driver=redis")
    assert needs_on_redis(chosen) == [("queues.driver", "redis")]
    assert chosen.queues.redis_durability == "disk"
