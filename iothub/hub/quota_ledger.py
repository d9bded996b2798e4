"""Quotas that hubs share, put together for one hub: where the ledger is, what this hub is called there, and who hears how it is.

Knows settings and the data directory; what is shared, and how, is `iothub_services.quota.shared`'s.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from iothub.base.clock import Clock
from iothub.base.errors import BackendError
from iothub.config.datadir import DataDir
from iothub.config.sections import Config
from iothub_services.auth.port import Run
from iothub_services.metrics import metrics
from iothub_services.metrics.alarms import AlarmName, Alarms
from iothub_services.metrics.exposition import Registry
from iothub_services.quota.shared import embedded
from iothub_services.quota.shared.embedded import EmbeddedLedger
from iothub_services.quota.shared.keys import Keys
from iothub_services.quota.shared.lease import Caller
from iothub_services.quota.shared.ledger_client import Later
from iothub_services.quota.shared.service import Mode, SharedQuota
from iothub_services.quota.usage import Usage, UsageRow, read_usage
from iothub_services.redis.calls import Call, Reply, single
from iothub_services.store_process.ledger import ANSWER_S, RemoteLedger

if TYPE_CHECKING:
    from iothub_services.redis.client import RedisClient

CALLS = 256  # under way to the store process
_NUMBERS = {Mode.SHARED: 1, Mode.INITIALISING: 0, Mode.DEGRADED: 0}


class QuotaLedger:
    """Makes the hub's half of the ledger; shows it to people."""

    def __init__(self, call: Caller, keys: Keys, place: str, alarms: Alarms) -> None:
        """`place`: names this data directory, or worker, in the ledger."""
        self._call = call
        self._keys = keys
        self._place = place
        self._alarms = alarms

    def quota(self, clock: Clock, later: Later, usage: Usage) -> SharedQuota:
        return SharedQuota(self._call, self._keys, self._place, clock, later, usage, self._on_mode)

    def _on_mode(self, mode: Mode, why: str) -> None:
        is_bad = mode is not Mode.SHARED
        self._alarms.set(AlarmName.QUOTA_DEGRADED, is_bad, detail=f"{mode.value}: {why}" if is_bad else "")


def on_redis(
    redis: RedisClient, settings: Config, installation: Callable[[], str], data_dir: DataDir, alarms: Alarms
) -> QuotaLedger:
    """`installation`: returns the id of the installation; called once the ledger is used, not before."""
    return QuotaLedger(_caller(redis), ledger_keys(settings, installation), _place(settings, data_dir), alarms)


def on_store_process(run: Run, settings: Config, data_dir: DataDir, clock: Clock, alarms: Alarms) -> QuotaLedger:
    """For a worker. `run`: has one thread for `quota`, so calls arrive in their order."""
    caller = StoreCaller(RemoteLedger(data_dir.store_socket), run, clock)
    return QuotaLedger(caller.call, embedded.KEYS, _place(settings, data_dir), alarms)


def ledger_of_workers(settings: Config, data_dir: DataDir, clock: Clock) -> EmbeddedLedger:
    """Make the ledger of all workers, for the store process; it knows what each of their directories has used of its windows.

    `settings`: those of the whole. Blocks. Raises UnavailableError.
    """
    ledger = EmbeddedLedger(clock)
    for each in (data_dir, *data_dir.workers()):
        ledger.know(_place_of(settings.node.number, each), used_in(each, clock))
    return ledger


def used_in(data_dir: DataDir, clock: Clock) -> list[UsageRow]:
    """Return what a data directory, or that of a worker, has used of the present windows."""
    return read_usage(data_dir.usage, data_dir.usage_slots, clock.wall())


def _place(settings: Config, data_dir: DataDir) -> str:
    return f"{settings.node.number}-{data_dir.hub_id()}"


def _place_of(first_node: int, data_dir: DataDir) -> str:
    return f"{first_node + max(data_dir.worker - 1, 0)}-{data_dir.hub_id()}"


def ledger_keys(settings: Config, installation: Callable[[], str]) -> Keys:
    """Return where an installation's ledger keeps what."""
    return Keys(lambda: f"{settings.redis.prefix}:{installation()}:")


def feed(registry: Registry, quota: SharedQuota) -> None:
    """Let the registry know where the figures are."""
    registry.feed(metrics.QUOTA_LEDGER_UP, lambda: _NUMBERS[quota.mode])
    registry.feed(metrics.QUOTA_LEDGER_HUBS, lambda: quota.hubs)
    registry.feed(metrics.QUOTA_LEDGER_ASKED, lambda: quota.ledger_client.asked)
    registry.feed(metrics.QUOTA_LEDGER_RETURNS, lambda: quota.returns)


class StoreCaller:
    """Asks the store process in a thread of the worker. On the reactor thread but for `_ask`.

    Invariant: nobody waits for much longer than one answer may take: what waited for so long behind others is not asked any more.
    """

    def __init__(self, ledger: RemoteLedger, run: Run, clock: Clock) -> None:
        self._ledger = ledger
        self._run = run
        self._clock = clock
        self._under_way = 0

    async def call(self, what: Call) -> Reply:
        """Fulfils `Caller`."""
        if self._under_way >= CALLS:
            raise BackendError(f"{CALLS} calls wait for the quota ledger of the store process", retryable=True)
        self._under_way += 1
        try:
            return await self._run("quota.run", self._ask, what, self._clock.monotonic() + ANSWER_S)
        finally:
            self._under_way -= 1

    def _ask(self, what: Call, until: float) -> Reply:
        if self._clock.monotonic() > until:
            raise BackendError("the quota ledger of the store process does not answer", retryable=True)
        if what.script is None:
            raise AssertionError("the ledger runs scripts alone")
        count, *arguments = what.arguments[2:]
        keys = [str(key) for key in arguments[: int(count)]]
        reply: Reply = self._ledger.run(what.script.digest, keys, arguments[int(count) :])
        return reply


def _caller(redis: RedisClient) -> Caller:
    async def call(what: Call) -> Reply:
        return single((await redis.run_many([what]))[0])

    return call
