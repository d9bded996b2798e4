"""What the doctor says of queues on Redis."""

from __future__ import annotations

import pytest

from iothub.base.units import Endpoint
from iothub.config.sections import Config, Queues, Redis
from iothub.doctor.findings import State
from iothub.doctor.redis_queues import check
from iothub_services.redis import from_settings
from iothub_services.redis.calls import ADVICE, RedisUnavailableError
from tests.support.servers.redis_queues import RedisHarness


def settings(durability: str = "disk") -> Config:
    queues = Queues(driver="redis", redis_durability=durability)
    return Config(queues=queues, redis=Redis(addresses=(Endpoint("127.0.0.1", 1),)))


@pytest.mark.parametrize(
    ("durability", "appendfsync", "state"),
    [
        ("disk", "always", State.OK),
        ("disk", "everysec", State.FAIL),
        ("memory", "everysec", State.WARN),
    ],
)
def test_server_is_judged_by_what_it_keeps(
    monkeypatch: pytest.MonkeyPatch, durability: str, appendfsync: str, state: State
) -> None:
    """A hub would not start with it, or it was allowed to lose something: said in words either way; nothing is written."""
    harness = RedisHarness()
    harness.settings["appendfsync"] = appendfsync
    monkeypatch.setattr(from_settings, "blocking", lambda *_: harness)

    (finding,) = check(settings(durability)).run()

    assert finding.state is state
    assert ("appendfsync" in finding.text) is (state is State.FAIL)
    assert harness.redis.execute_command("KEYS", "*") == []
    assert harness.closed == 3  # two of the queues, one of the probe


def test_server_that_cannot_be_asked_needs_no_other_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """The advice is not CONFIG SET."""
    harness = RedisHarness()
    error = RedisUnavailableError("Redis at here:1: no", remedy="said once")
    monkeypatch.setattr(harness, "run_many", lambda calls: [error] * len(calls))
    monkeypatch.setattr(from_settings, "blocking", lambda *_: harness)

    (finding,) = check(settings()).run()

    assert (finding.state, finding.text) == (State.FAIL, "Redis at here:1: no")
    assert finding.advice == f"{ADVICE}; until then the hub stores no messages there"
