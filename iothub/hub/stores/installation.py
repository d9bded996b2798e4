"""Whose the stores are that a hub is about to use: those of its accounts, or they are not touched.

Knows how each kind of store says whose it is, and no session. Accounts number their tenants from 1, so sessions, queues and retained messages of
other accounts would look like those of this one's tenants.

Theory: an accounts database has an id, made with it. The first hub that uses a store on a server leaves the id there, by compare-and-swap; each start
reads it before anything else, of all stores before it takes one. A data directory has it in a file, for the stores in files beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from datetime import UTC, datetime
from typing import Protocol

from iothub.base import log as logging
from iothub.base.clock import Clock, SystemClock
from iothub.base.errors import BackendError, ConflictError, NotOursError
from iothub.config.datadir import DataDir
from iothub.config.sections import Config
from iothub.config.sections.stores import chosen_tenants
from iothub.hub.late import LateBound
from iothub.records.owner import Owner
from iothub_services.hbase.administration import claim, owners
from iothub_services.hbase.caller import Caller
from iothub_tenants.accounts import installations, tenants
from iothub_tenants.accounts.bounds import bounds_of
from iothub_tenants.accounts.database import accounts_url
from iothub_tenants.accounts.store import AccountStore

log = logging.get(__name__)

_SYSTEM_CLOCK = SystemClock()


class Owned(Protocol):
    """Stores on one server."""

    def check(self) -> None:
        """Raise NotOursError when they are somebody else's."""

    def claim(self) -> None:
        """Take what is nobody's. Raises as `check`."""


class Topics(Protocol):
    """`iothub_services.events.kafka.log.KafkaEvents`, as far as it is needed here."""

    def owner(self) -> Owner | None: ...

    def claim(self, owner: Owner) -> Owner: ...


class RedisStore(Protocol):
    """`iothub_services.queues.redis.store.RedisQueues`, as far as it is needed here."""

    def owner(self) -> Owner | None: ...

    def claim_store(self, owner: Owner) -> Owner: ...


class Installation:
    """The accounts of a hub, as stores know them. Invariant: no store on a server is used before the id is known."""

    def __init__(self, settings: Config, installation: str | None = None, clock: Clock = _SYSTEM_CLOCK) -> None:
        """`installation`: the id; None: `learn` asks the accounts for it, which may be on a server that does not answer yet."""
        self._id: LateBound[str] = LateBound("the id of the installation")
        if installation is not None:
            self._id.bind(installation)
        self._settings = settings
        self.clock = clock
        self._at_ms = int(clock.wall() * 1000)

    def learn(self, accounts: AccountStore, data_dir: DataDir) -> None:
        """See that the accounts can be used, and whose they are. Blocks. Raises UnavailableError, ConfigError, ConflictError."""
        accounts.probe().require()
        accounts.check()
        found = installations.own(accounts)
        _check_directory(data_dir, found)
        missing = tenants.missing(accounts, chosen_tenants(self._settings.queues))
        self._id.bind(found)  # last: what fails above is tried again as a whole
        if missing:
            log.warning("queues.choices names tenants that do not exist: these choices have no effect", tenants=missing)

    @property
    def id(self) -> str:
        return self._id()

    @property
    def owner(self) -> Owner:
        return Owner(self.id, self._settings.node.name, self._at_ms)

    def tables(self, caller: Caller, columns: Mapping[bytes, bytes]) -> Owned:
        """`columns`: of the tables that are used, as `iothub_services.hbase.administration.owner_columns` has them."""
        return _Tables(self, caller, columns)

    def topics(self, log: Topics) -> Owned:
        return _Whole(
            self, f"Kafka's topics {self._settings.kafka.topic_prefix}.*", "kafka.topic_prefix", log.owner, log.claim
        )

    def redis_queues(self, queues: RedisStore) -> Owned:
        name = f"Redis's queues {self._settings.redis.prefix}:queue:*"
        return _Whole(self, name, "redis.prefix", queues.owner, queues.claim_store)

    def check_directory(self, data_dir: DataDir) -> None:
        """Raise ConflictError when the files beside the accounts were made with other accounts."""
        _check_directory(data_dir, self.id)

    def note(self, data_dir: DataDir) -> None:
        """Leave word in the directory, for later starts. Raises UnavailableError."""
        if data_dir.read_installation() is None:
            data_dir.write_installation(self.id)

    def require(self, where: str, found: Owner | None, instead: str) -> None:
        """Raise NotOursError unless that is this installation, or nobody. `instead`: the setting that names the store."""
        if found is None or found.installation == self.id:
            return
        raise NotOursError(
            f"{where}: belongs to installation {found.installation} (hub {found.hub!r} took it {_moment(found.at_ms)}), these accounts are of "
            f"installation {self.id}: use the accounts that it was made with (sql.url_file, --data-dir), or choose another {instead}; {_ADOPT}"
        )


_ADOPT = "for accounts that were restored see `iothub db adopt --help`"


class _Tables:
    """The stores on HBase that are used."""

    def __init__(self, installation: Installation, caller: Caller, columns: Mapping[bytes, bytes]) -> None:
        self._installation = installation
        self._caller = caller
        self._columns = columns

    def check(self) -> None:
        self._require(owners(self._caller, self._columns))

    def claim(self) -> None:
        found = claim(self._caller, self._columns, self._installation.owner)
        self._require(found)
        if None in found.values():
            raise BackendError("HBase did not store the owner of the tables; will retry", retryable=True)

    def _require(self, found: Mapping[bytes, Owner | None]) -> None:
        for table, owner in found.items():
            self._installation.require(f"HBase's table {table.decode()}", owner, "hbase.namespace")


class _Whole:
    """One store, or several that belong together. `instead`: the setting that names it."""

    def __init__(
        self,
        installation: Installation,
        name: str,
        instead: str,
        owner: Callable[[], Owner | None],
        claim: Callable[[Owner], Owner],
    ) -> None:
        self._installation = installation
        self._name = name
        self._instead = instead
        self._owner = owner
        self._claim = claim

    def check(self) -> None:
        self._installation.require(self._name, self._owner(), self._instead)

    def claim(self) -> None:
        self._installation.require(self._name, self._claim(self._installation.owner), self._instead)


def installation_of(settings: Config, data_dir: DataDir) -> Installation:
    """Ask the accounts which installation they are of. Raises BackendError, ConfigError, ConflictError."""
    url = accounts_url(settings.sql.url_file, data_dir.accounts)
    with closing(AccountStore(url, bounds=bounds_of(settings.sql))) as accounts:
        return Installation(settings, installations.own(accounts))


def _check_directory(data_dir: DataDir, installation: str) -> None:
    found = data_dir.read_installation()
    if found is not None and found != installation:
        raise ConflictError(
            f"{data_dir.path}: its stores belong to installation {found}, these accounts are of installation {installation}: put the accounts "
            f"back that they were made with (restore a backup of the whole directory), or choose another --data-dir; {_ADOPT}"
        )


def _moment(at_ms: int) -> str:
    return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%d %H:%M} UTC"
