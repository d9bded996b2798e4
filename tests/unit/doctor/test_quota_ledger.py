"""What the doctor says of the quota ledger."""

from __future__ import annotations

from pathlib import Path

import pytest

from iothub.base.units import Endpoint
from iothub.config.datadir import DataDir
from iothub.config.sections import Config, Redis
from iothub.doctor import quota_ledger
from iothub.doctor.findings import Finding, State
from iothub.hub.quota_ledger import ledger_keys
from iothub.hub.stores.installation import Installation
from iothub_services.redis import from_settings
from tests.support.servers.redis_queues import Fault, RedisHarness

SETTINGS = Config(redis=Redis(addresses=(Endpoint("127.0.0.1", 1),)))
KEYS = ledger_keys(SETTINGS, lambda: "abc")
FAR = 9_999_999_999_999


@pytest.fixture
def harness(monkeypatch: pytest.MonkeyPatch) -> RedisHarness:
    harness = RedisHarness()
    monkeypatch.setattr(from_settings, "blocking", lambda *_: harness)
    monkeypatch.setattr(quota_ledger, "installation_of", lambda *_: Installation(SETTINGS, "abc"))
    return harness


def found(folder: Path) -> Finding:
    (finding,) = quota_ledger.check(DataDir(folder), SETTINGS).run()
    return finding


def test_hubs_that_share_the_limits_are_named(harness: RedisHarness, tmp_path: Path) -> None:
    """By their numbers, each once; who has lost his lease is not there."""
    assert found(tmp_path).text == "no hub has used it yet"
    harness.redis.hset(KEYS.state, "settled", 1)
    assert found(tmp_path).text == "no hub holds a lease"
    for hub, until in {"2-cd.5": FAR, "10-ab.6": FAR, "2-cd.7": FAR, "3-ef.8": 1}.items():
        harness.redis.hset(KEYS.hubs, hub, f"{until} 17")

    assert found(tmp_path).state is State.OK
    assert found(tmp_path).text.endswith("node.number 2, 10")
    assert harness.closed == 4


def test_ledger_that_was_emptied_is_a_warning(harness: RedisHarness, tmp_path: Path) -> None:
    """For some seconds nobody gets in."""
    harness.redis.hset(KEYS.state, "settled", FAR)

    assert (found(tmp_path).state, "wait" in found(tmp_path).advice) == (State.WARN, True)


def test_ledger_that_does_not_answer_is_a_warning(harness: RedisHarness, tmp_path: Path) -> None:
    """A hub goes on with its last share."""
    harness.fault = lambda _: Fault.LOST_BEFORE

    assert (found(tmp_path).state, "last share" in found(tmp_path).advice) == (State.WARN, True)
