"""Quotas that hubs share, put together for one hub: where the ledger is, what this hub is called there, and who hears how it is.

Knows settings and the data directory; what is shared, and how, is `iothub_services.quota.shared`'s.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from iothub.base.clock import Clock
from iothub.config.datadir import DataDir
from iothub.config.sections import Config
from iothub_services.metrics import metrics
from iothub_services.metrics.alarms import AlarmName, Alarms
from iothub_services.metrics.exposition import Registry
from iothub_services.quota.shared.keys import Keys
from iothub_services.quota.shared.lease import Caller
from iothub_services.quota.shared.ledger_client import Later
from iothub_services.quota.shared.service import Mode, SharedQuota
from iothub_services.quota.usage import Usage
from iothub_services.redis.calls import Call, Reply, single

if TYPE_CHECKING:
    from iothub_services.redis.client import RedisClient

_NUMBERS = {Mode.SHARED: 1, Mode.INITIALISING: 0, Mode.DEGRADED: 0}


class QuotaLedger:
    """Makes the hub's half of the ledger; shows it to people."""

    def __init__(self, settings: Config, installation: Callable[[], str], data_dir: DataDir, alarms: Alarms) -> None:
        """`installation`: returns the id of the installation; called once the ledger is used, not before."""
        self._keys = ledger_keys(settings, installation)
        self._place = f"{settings.node.number}-{data_dir.hub_id()}"
        self._alarms = alarms

    def quota(self, redis: RedisClient, clock: Clock, later: Later, usage: Usage) -> SharedQuota:
        return SharedQuota(_caller(redis), self._keys, self._place, clock, later, usage, self._on_mode)

    def _on_mode(self, mode: Mode, why: str) -> None:
        is_bad = mode is not Mode.SHARED
        self._alarms.set(AlarmName.QUOTA_DEGRADED, is_bad, detail=f"{mode.value}: {why}" if is_bad else "")


def ledger_keys(settings: Config, installation: Callable[[], str]) -> Keys:
    """Return where an installation's ledger keeps what."""
    return Keys(lambda: f"{settings.redis.prefix}:{installation()}:")


def feed(registry: Registry, quota: SharedQuota) -> None:
    """Let the registry know where the figures are."""
    registry.feed(metrics.QUOTA_LEDGER_UP, lambda: _NUMBERS[quota.mode])
    registry.feed(metrics.QUOTA_LEDGER_HUBS, lambda: quota.hubs)
    registry.feed(metrics.QUOTA_LEDGER_ASKED, lambda: quota.ledger_client.asked)
    registry.feed(metrics.QUOTA_LEDGER_RETURNS, lambda: quota.returns)


def _caller(redis: RedisClient) -> Caller:
    async def call(what: Call) -> Reply:
        return single((await redis.run_many([what]))[0])

    return call
