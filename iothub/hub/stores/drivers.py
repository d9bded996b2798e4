"""Which driver serves each port, as the settings choose: opened here for hub and command alike.

Knows settings and drivers, and nobody who uses them. A driver whose packages are an extra is imported when it is chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING

from iothub.base.clock import Clock
from iothub.base.errors import BackendError, ConfigError, ConflictError
from iothub.config.datadir import DataDir
from iothub.config.sections import Config
from iothub.hub.backup_hold import Commits
from iothub.hub.stores.choices import needs_store_process, note_drivers, noted_drivers, queue_drivers
from iothub.hub.stores.embedded import Alarm, Embedded, OfStoreProcess, OpenFile, OwnFiles
from iothub.hub.stores.installation import Installation, Owned
from iothub_services.auth.change_watermark import ChangeWatermark
from iothub_services.auth.shared import NEGATIVE_TTL_S, SharedRecords, SharedSettings
from iothub_services.damaged import OnDamage, uncounted
from iothub_services.events.port import EventLog
from iothub_services.events.statistics import StatisticsLog
from iothub_services.hbase.administration import owner_columns, probe, require_tables
from iothub_services.hbase.caller import Caller
from iothub_services.hbase.tables import TableLayout, Tables, layouts
from iothub_services.metrics.alarms import AlarmName, Alarms
from iothub_services.metrics.exposition import Registry
from iothub_services.probing import require
from iothub_services.queues.damage import no_alarm
from iothub_services.queues.port import JournalFigures, QueueStore
from iothub_services.queues.routing import RoutingStore
from iothub_services.retained.port import RetainedStore
from iothub_services.sqlite.commit_lock import CommitLock
from iothub_services.state.checkpoints import CheckpointStore
from iothub_services.state.port import StateStore
from iothub_services.store_process.commits import RemoteCommits

if TYPE_CHECKING:
    from iothub_services.events.kafka.log import KafkaEvents
    from iothub_services.queues.redis.store import RedisQueues
    from iothub_services.redis.client import Reactor, RedisClient

Connect = Callable[[], Caller]

_FOLLOWED_WAIT_MS = 10


def _nobody(_word: str, _text: str) -> None:
    """Nobody has to know."""


def _ignore(_why: str) -> None:
    """Nobody has to know."""


class Drivers:
    """Opens stores; nothing is asked of a server yet.

    Args:
        connect: How this process reaches HBase; called once, and only when a store is there. The caller closes what it made.

        installation: Whose the stores on servers must be; they go by its clock.
        is_read_only: Nothing is made on a server: there is no log on Kafka unless a hub has made it.
        on_alarm: Called with what stores find out about themselves (`iothub.hub.stores.store_alarms`), in any thread.
        on_damage: Called with damaged records that queues find without a reader, in any thread.

    `needed`: for each server that must answer before a hub starts, what asks it; it blocks, and raises UnavailableError.
    `owned`: for each of them, its stores that must be this installation's; `needed` has looked at that as well.
    """

    def __init__(
        self,
        settings: Config,
        data_dir: DataDir,
        open_file: OpenFile,
        connect: Connect,
        installation: Callable[[], Installation],
        on_alarm: Alarm = _nobody,
        *,
        on_damage: OnDamage = uncounted,
        is_read_only: bool = False,
    ) -> None:
        self._settings = settings
        self._data_dir = data_dir
        queues = settings.queues
        journal_bytes = queues.journal_bytes if queues.journal else 0
        self._embedded: Embedded = OwnFiles(data_dir, open_file, on_alarm, journal_bytes=journal_bytes)
        self._connect = connect
        self._installation = installation
        self._on_alarm = on_alarm
        self._on_damage = on_damage
        self._is_read_only = is_read_only
        self._caller: Caller | None = None
        self.needed: dict[str, Callable[[], None]] = {}
        self.owned: dict[str, Owned] = {}
        if data_dir.worker and needs_store_process(settings, data_dir):
            self._embedded = of_workers = OfStoreProcess(data_dir.store_socket, on_alarm)
            self.needed["the store process"] = of_workers.require

    def event_log(self) -> EventLog:
        """Open the session-event log. Raises ConfigError: the extra is not installed."""
        if self._settings.events.driver == "sqlite":
            return self._embedded.events()
        log = kafka_log(self._settings, is_read_only=self._is_read_only)
        self.owned["Kafka"] = owned = self._installation().topics(log)
        self.needed["Kafka"] = partial(_each, partial(require, log.reach), owned.check, log.open)
        return log

    def followed_log(self) -> EventLog:
        """Return a shared log with connections of its own, for whoever follows it: it is quick to say that there is nothing."""
        if self._settings.events.driver == "sqlite":
            return self._embedded.events()
        return _followed_log(self._settings)

    def statistics_log(self) -> StatisticsLog | None:
        """Open a log for events that no session may wait for; None: they are in the file of the others."""
        return None if self._settings.events.driver == "sqlite" else kafka_log(self._settings)

    def queues(self) -> QueueStore:
        """Open the queues: of one driver, or of several where there are choices or a hub worked here with another one.

        Raises:
            ConfigError: Queues were made on a server, and the settings say no longer where that is.
        """
        names = queue_drivers(self._settings, self._data_dir)
        was_on_redis = "redis" in noted_drivers(self._data_dir) and self._data_dir.read_installation() is not None
        note_drivers(self._data_dir, [name for name in names if name != "sqlite"])
        stores = {name: self._queues_of(name, was_on_redis=was_on_redis) for name in names}
        if len(names) == 1:
            return stores[names[0]]
        return RoutingStore(stores, self._settings.queues.driver)

    def journal_figures(self) -> JournalFigures:
        """Return what the journal of the queues is doing. Any thread."""
        return self._embedded.journal_figures()

    def _queues_of(self, driver: str, *, was_on_redis: bool) -> QueueStore:
        if driver == "sqlite":
            return self._embedded.queues()
        if driver == "redis":
            return self._queues_on_redis(was_used=was_on_redis)
        return hbase_queues(self._hbase(), self._settings, self._on_alarm, self._on_damage, self._installation().clock)

    def _queues_on_redis(self, *, was_used: bool) -> QueueStore:
        """`was_used`: a hub worked here with queues on Redis: then they are there, or lost."""

        def lost(why: str) -> None:
            self._on_alarm("queues_gone", why)
            try:
                owned.claim()  # whose they are went with them: nobody else shall take the place
            except ConflictError as error:
                raise BackendError(str(error), retryable=True) from None

        def report_lost() -> None:
            if was_used and not queues.is_used():
                self._on_alarm(
                    "queues_gone", "Redis has none of the queues that a hub has used: it was emptied, or is another one"
                )

        back = partial(self._on_alarm, "queues_gone")
        queues = redis_queues(self._settings, lost, back, self._on_alarm, self._on_damage, self._installation().clock)
        owned = self.owned["Redis"] = self._installation().redis_queues(queues)
        self.needed["Redis"] = partial(
            _each, partial(require_redis, self._settings), queues.require_kept, owned.check, report_lost
        )
        return queues

    def states(self) -> StateStore:
        if self._settings.state.driver == "sqlite":
            return self._embedded.states()
        return hbase_states(self._hbase(), self._settings)

    def checkpoints(self) -> CheckpointStore | None:
        """Open what a start may begin from; None: there is no file, since no job has made a checkpoint."""
        if self._settings.state.driver != "sqlite":
            return hbase_checkpoints(self._hbase(), self._settings)
        return self._embedded.checkpoints()

    def retained(self) -> RetainedStore:
        if self._settings.retained.driver == "sqlite":
            return self._embedded.retained()
        return hbase_retained(self._hbase(), self._settings)

    def commits(self, own: CommitLock) -> Commits:
        """Return what keeps commits to files back, for a backup; `own`: those of this process."""
        return RemoteCommits(self._data_dir.store_socket) if self._data_dir.worker else own

    def _hbase(self) -> Caller:
        if self._caller is None:
            self._caller = self._connect()
            wanted = needed_tables(self._settings, self._data_dir)
            self.owned["HBase"] = owned = owned_tables(self._installation(), self._caller, wanted, self._settings)
            reached = partial(require, partial(probe, self._caller))
            self.needed["HBase"] = partial(_each, reached, partial(require_tables, self._caller, wanted), owned.check)
        return self._caller


def _each(*calls: Callable[[], None]) -> None:
    for call in calls:
        call()


def owned_tables(installation: Installation, caller: Caller, wanted: Sequence[TableLayout], settings: Config) -> Owned:
    """Return the stores on HBase that have these tables."""
    names = {layout.name.encode() for layout in wanted}
    columns = owner_columns(Tables(settings.hbase.namespace))
    return installation.tables(caller, {table: column for table, column in columns.items() if table in names})


def kafka_log(settings: Config, *, is_read_only: bool = False) -> KafkaEvents:
    """Return the log on Kafka; nothing is asked of the cluster yet. Raises ConfigError: the extra is not installed."""
    require_extra('events.driver = "kafka"', "kafka", "kafka", "crc32c")
    from iothub_services.events.kafka.log import KafkaEvents

    return KafkaEvents(settings.kafka, is_read_only=is_read_only)


def _followed_log(settings: Config) -> EventLog:
    from iothub_services.events.kafka.log import KafkaEvents

    return KafkaEvents(settings.kafka, is_read_only=True, wait_ms=_FOLLOWED_WAIT_MS)


def redis_queues(
    settings: Config,
    on_lost: Callable[[str], None] = _ignore,
    on_back: Callable[[str], None] = _ignore,
    on_damaged: Callable[[str, str], None] = no_alarm,
    on_damaged_record: OnDamage = uncounted,
    clock: Clock | None = None,
) -> RedisQueues:
    """Return the queues on Redis; nothing is asked of it yet. Raises ConfigError: the extra is not installed, or the password cannot be read."""
    require_extra('queues.driver = "redis"', "redis", "redis", "hiredis")
    from iothub_services.queues.redis.store import RedisQueues
    from iothub_services.redis import from_settings

    write, read = (
        from_settings.blocking(settings.redis, f"iothub-{settings.node.name}-{what}")
        for what in ("queues", "queues-read")
    )
    return RedisQueues(
        write.write_many,
        read.run_many,
        settings.redis.prefix,
        clock=clock,
        is_memory_enough=settings.queues.redis_durability == "memory",
        on_lost=on_lost,
        on_back=on_back,
        on_damaged=on_damaged,
        on_damaged_record=on_damaged_record,
        on_close=partial(_each, write.close, read.close),
    )


def require_redis(settings: Config) -> None:
    """Raise UnavailableError unless Redis is reached."""
    from iothub_services.redis.probe import probe

    probe(settings.redis).require()


def hbase_queues(
    caller: Caller,
    settings: Config,
    on_damaged: Callable[[str, str], None] = no_alarm,
    on_damaged_record: OnDamage = uncounted,
    clock: Clock | None = None,
) -> QueueStore:
    """Return the queues on HBase."""
    from iothub_services.queues.hbase.store import HBaseQueues

    names, frame_bytes = Tables(settings.hbase.namespace), settings.hbase.frame_limit
    return HBaseQueues(
        caller, names, clock=clock, frame_bytes=frame_bytes, on_damaged=on_damaged, on_damaged_record=on_damaged_record
    )


def hbase_states(caller: Caller, settings: Config) -> StateStore:
    from iothub_services.state.hbase.store import HBaseStates

    return HBaseStates(caller, Tables(settings.hbase.namespace))


def hbase_checkpoints(caller: Caller, settings: Config) -> CheckpointStore:
    from iothub_services.state.hbase.checkpoints import HBaseCheckpoints

    return HBaseCheckpoints(caller, Tables(settings.hbase.namespace))


def hbase_retained(caller: Caller, settings: Config) -> RetainedStore:
    from iothub_services.retained.hbase.store import HBaseRetained

    return HBaseRetained(caller, Tables(settings.hbase.namespace))


def needed_tables(settings: Config, data_dir: DataDir) -> list[TableLayout]:
    """Return the tables in HBase that are used here."""
    names = Tables(settings.hbase.namespace)
    wanted = set()
    if "hbase" in queue_drivers(settings, data_dir):
        wanted |= {names.queues, names.queue_index, names.bodies}
    wanted |= {names.state, names.checkpoints} if settings.state.driver == "hbase" else set()
    wanted |= {names.retained} if settings.retained.driver == "hbase" else set()
    every = layouts(settings.hbase.namespace, settings.hbase.regions)
    return [layout for layout in every if layout.name.encode() in wanted]


def redis_client(settings: Config, reactor: Reactor, registry: Registry, alarms: Alarms) -> RedisClient | None:
    """Return the reactor's client of Redis, not started yet; None: no Redis is configured.

    Raises ConfigError: the extra is not installed, or the password cannot be read.
    """
    if not settings.redis.addresses:
        return None
    require_extra("redis.addresses", "redis", "redis", "hiredis")
    from iothub_services.redis import from_settings
    from iothub_services.redis.metering import RegistryMeter

    def on_trouble(trouble: str) -> None:
        alarms.set(AlarmName.REDIS_UNREACHABLE, bool(trouble), detail=trouble)

    meter = RegistryMeter(registry)
    client = from_settings.client(settings.redis, reactor, meter, on_trouble, f"iothub-{settings.node.name}")
    meter.watch(client)
    return client


def shared_records(
    settings: Config, redis: RedisClient | None, installation: Callable[[], str], pepper: bytes, clock: Clock
) -> SharedRecords | None:
    """Return the second level of the cache of accounts; None: there is none."""
    if redis is None or settings.auth.shared_cache == "off":
        return None
    from iothub_services.redis.from_settings import scope

    ttl_s = settings.auth.shared_cache_ttl_s
    options = SharedSettings(lambda: scope(settings.redis, installation()), ttl_s, min(ttl_s, NEGATIVE_TTL_S))
    return SharedRecords(redis, ChangeWatermark(clock, settings.auth.cache_s), pepper, clock, options)


def require_extra(chosen: str, extra: str, *packages: str) -> None:
    """Raise ConfigError when a package of an extra is not installed."""
    if any(find_spec(package) is None for package in packages):
        raise ConfigError(f"{chosen} needs packages that are not installed: pip install 'iothub[{extra}]'")
