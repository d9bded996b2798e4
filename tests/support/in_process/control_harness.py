"""A whole control plane over doubles: real packet handlers, sessions, quota and engine; accounts, queues, journal, clock and sockets are the test's.

Knows no process and no thread: every answer comes when the test says so (`settle`, `Journal.hold`, `pass_time`).
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, cast

from twisted.internet.defer import Deferred

from iothub.base.errors import BackendError, NotFoundError, UnavailableError
from iothub.base.ids import MessageIds
from iothub.base.reasons import Reason
from iothub.config.sections import Auth, Config
from iothub.engine.limits import ListenerInfo, PlaneLimits
from iothub.engine.plane import Plane
from iothub.engine.state import Session
from iothub.hooks import Hooks, PlugIn
from iothub.hub.cluster.session_locks import SessionLocks
from iothub.hub.composition.broker_factory import BrokerFactory
from iothub.hub.composition.control import PlaneDependencies, compose_control, late_brokers
from iothub.records.events import Event
from iothub.testing.accounts import MemoryAccounts
from iothub.testing.clock import ManualClock
from iothub.testing.engine import Claim, LoopbackTransport, ManualStore, RecordingObserver
from iothub_services.auth.authenticator import Authenticator, AuthSettings
from iothub_services.auth.port import Action, DeviceRecord, Effect, Rule, Scope, TenantRecord
from iothub_services.auth.secrets import hash_generated
from iothub_services.connections.log import ConnectionLines, ConnectionLog, LineRate
from iothub_services.damaged import uncounted
from iothub_services.events.port import Offsets
from iothub_services.queues.port import Purged, QueueLimits, QueueStats, TenantUsage
from iothub_services.queues.threads import LoadedPage
from iothub_services.quota.names import Quota
from iothub_services.quota.usage import Usage, UsageStore
from iothub_services.retained.port import RetainedBody, RetainedTopic
from iothub_services.sessions.manager import SessionManager
from iothub_services.sessions.port import Cluster, NoWillKeeper, SessionDirectory, SingleHub, WillKeeper
from iothub_tenants.broker.broker import TenantBroker
from iothub_tenants.broker.brokers import Brokers
from iothub_tenants.broker.hub import Hub
from iothub_tenants.broker.peer_routes import NoPeerRoutes, PeerRoutes
from iothub_tenants.broker.traffic import PastTraffic
from iothub_tenants.control.control import ControlPlane
from tests.support.clients.mqtt_clients import Client

PEPPER = bytes(32)
SECRET = "secret"
EVERYTHING = Rule(Scope.TENANT, "", Effect.ALLOW, Action.BOTH, "#")


def device(name: str, **options: Any) -> DeviceRecord:
    """A device whose secret is "secret"."""
    return DeviceRecord(name, hash_generated(SECRET.encode(), PEPPER), **options)


def now(steps: Coroutine[Any, Any, Any]) -> Any:
    """The result of a coroutine that waits for nothing."""
    answers: list[Any] = []
    Deferred.fromCoroutine(steps).addBoth(answers.append)
    assert answers, "it waits"
    if hasattr(answers[0], "raiseException"):
        answers[0].raiseException()
    return answers[0]


async def run(_name: str, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """A pool that runs at once."""
    return call(*args, **kwargs)


class Journal:
    """Remembers events; `hold` makes the durable ones wait for `release`, `is_down` refuses them, `is_uncertain`: they may be there all the same."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.is_down = False
        self.is_uncertain = False
        self.is_held = False
        self.waiting: list[Deferred[None]] = []

    async def record(self, events: list[Event]) -> Offsets | None:
        if self.is_down:
            raise BackendError("events.db: disk full", retryable=True, is_written=self.is_uncertain)
        if self.is_held:
            self.waiting.append(Deferred())
            await self.waiting[-1]
        self.events += events
        return (len(self.events),)

    def note(self, events: list[Event]) -> None:
        self.events += events

    def release(self) -> None:
        self.is_held = False
        waiting, self.waiting = self.waiting, []
        for each in waiting:
            each.callback(None)

    def words(self) -> list[str]:
        """The types of the events so far, which are forgotten."""
        words = [event.type.value for event in self.events]
        self.events.clear()
        return words


@dataclass
class Queues:
    """Fulfils `QueueAdmin` over the rows of a ManualStore."""

    store: ManualStore
    owners: dict[int, int] = field(default_factory=dict)
    dropped: list[int] = field(default_factory=list)
    limits: dict[int, QueueLimits] = field(default_factory=dict)
    purged: list[int] = field(default_factory=list)
    is_down: bool = False  # nothing can be dropped
    is_silent: bool = False  # nobody answers

    async def create(self, tenant_id: int, queue_id: int, limits: QueueLimits, first_epoch: int) -> None:
        self.store.queue(queue_id).epoch = first_epoch - 1
        self.owners[queue_id] = tenant_id
        self.limits[queue_id] = limits

    async def claim(self, queue_id: int, _owner: bytes) -> Claim:
        if self.is_silent:
            raise BackendError("HBase has not answered", retryable=True)
        if queue_id not in self.owners:
            raise NotFoundError(f"there is no queue {queue_id}")
        return self.store.claim(queue_id)

    async def stats(self, queue_id: int) -> QueueStats:
        if queue_id not in self.owners:
            raise NotFoundError(f"there is no queue {queue_id}")
        return QueueStats(queue_id, self.owners[queue_id], 0, 0, 0, 0, self.store.queue(queue_id).epoch)

    async def existing(self, queue_ids: list[int]) -> set[int]:
        return set(queue_ids).intersection(self.owners)

    async def load(self, queue_id: int, _epoch: int, after: int) -> LoadedPage:
        rows = self.store.queue(queue_id)
        records = [record.delivery() for position, record in sorted(rows.records.items()) if after < position]
        return LoadedPage(records, rows.tail, True, [])

    async def drop(self, queue_id: int) -> int:
        if self.is_down:
            raise BackendError("queues.db: disk full", retryable=True)
        self.owners.pop(queue_id, None)
        rows = self.store.rows.pop(queue_id, None)
        self.dropped.append(queue_id)
        return 0 if rows is None else len(rows.records)

    async def purge(self, queue_id: int, _upto: int = 0) -> Purged:
        self.purged.append(queue_id)
        return Purged(len(self.store.queue(queue_id).records))

    async def list_queues(self, tenant_id: int) -> list[QueueStats]:
        return [
            QueueStats(queue_id, tenant_id, 0, 0, 0, 0, 1, self.limits[queue_id])
            for queue_id, owner in self.owners.items()
            if owner == tenant_id
        ]

    async def set_limits(self, changes: list[tuple[int, QueueLimits]]) -> None:
        self.limits.update(changes)

    async def set_tenant_limits(self, tenant_id: int, messages: int, size_bytes: int) -> None:
        """Nothing here has room for less than everything."""


class NoRetained:
    """A retained store without messages."""

    async def load(self, _tenant_id: int) -> list[RetainedTopic]:
        return []

    async def fetch(self, _tenant_id: int, _topics: object) -> list[RetainedBody]:
        return []

    async def delete(self, _tenant_id: int, _topics: object) -> int:
        return 0

    async def settle(self, _tenant_id: int) -> None:
        return


class Ids:
    """Queue ids from 1; `is_empty`: the block is used up, so the next one needs a transaction."""

    def __init__(self) -> None:
        self.last = 0
        self.is_empty = False

    def allocate(self) -> int:
        self.is_empty = False
        self.last += 1
        return self.last

    def allocate_nowait(self) -> int | None:
        return None if self.is_empty else self.allocate()


class Recorder(RecordingObserver):
    """What the observers of engine, quota, accounts and control plane heard."""

    def __init__(self) -> None:
        super().__init__()
        self.answers: list[str] = []
        self.refusals: list[Quota] = []
        self.denials: list[str] = []
        self.causes: list[str] = []

    def closed(self, _reason: Reason) -> None:
        """Nobody asks."""

    def connected(self, _listener: str, _version: int, result: str) -> None:
        self.answers.append(result)

    def denied(self, _tenant_id: int, action: str) -> None:
        self.denials.append(action)

    def proven(self, _who: object) -> None:
        """Nobody asks."""

    def store_failed(self, _call: str, _error: Exception) -> None:
        """Nobody asks."""

    def would_refuse(self, _tenant_id: int, _quota: Quota) -> None:
        """Nothing is on trial."""

    def unbalanced(self, _tenant_id: int, quota: Quota) -> None:
        raise AssertionError(quota)

    def refused(self, first: Any, second: Any, **_: Any) -> None:
        """Of quotas (tenant, quota) and of credentials (shown, refusal)."""
        if isinstance(second, Quota):
            self.refusals.append(second)
        else:
            self.causes.append(second.cause)


class OtherHubs:
    """The shared ledger of a tenant. `asked`: the units that were asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[tuple[Quota, int], ...]] = []
        self.is_silent = False

    async def room(self, *wanted: tuple[Quota, int]) -> bool:
        self.asked.append(wanted)
        if self.is_silent:
            raise UnavailableError("Redis does not answer")
        return True

    def spent(self, quota: Quota) -> None:
        """Nobody asks."""


class Loopback:
    """The socket of a Client: bytes go straight into the plane."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        self.transport = LoopbackTransport()
        self.connection = harness.plane.accept(self.transport, ListenerInfo(name="tcp"), "192.0.2.1:4711")
        self.transport.connection = self.connection
        self.is_gone = False
        harness.sockets.append(self)

    def sendall(self, data: bytes) -> None:
        assert self.connection is not None
        self.connection.feed(data)
        self.harness.plane.end_batch()
        self.harness.settle()

    def pending(self) -> bool:
        return True

    def fileno(self) -> int:
        return -1  # nobody waits for it: there is always something pending

    def recv(self, _count: int) -> bytes:
        data = self.transport.take()
        if not data and not self.transport.is_closed:
            raise TimeoutError("nothing came")
        return data

    def close(self) -> None:
        self.transport.is_closed = True
        self.harness.settle()

    def look(self) -> None:
        """Whoever closed it: the plane is told once that it is gone."""
        if self.transport.is_closed and not self.is_gone and self.connection is not None:
            self.is_gone = True
            self.connection.lost(Reason.NETWORK)


def _one_hub(_brokers: Brokers, _sessions: Callable[[], SessionManager]) -> SessionDirectory:
    return SessionLocks()


class Harness:
    """One worker with tenant `acme` (id 7, everything allowed) and devices `dev1` and `dev2`, whose secret is "secret"."""

    def __init__(
        self,
        path: Path,
        *,
        hooks: Hooks | None = None,
        settings: Config | None = None,
        cluster: Cluster | None = None,
        retained: object = None,
        make_routes: Callable[[Plane], PeerRoutes] = lambda _plane: NoPeerRoutes(),
        make_directory: Callable[[Brokers, Callable[[], SessionManager]], SessionDirectory] = _one_hub,
        make_will_keeper: Callable[[Brokers], WillKeeper] = lambda _brokers: NoWillKeeper(),
    ) -> None:
        self.clock = ManualClock()
        self.accounts = MemoryAccounts()
        self.accounts.add(TenantRecord(7, "acme", rules=(EVERYTHING,)), device("dev1"), device("dev2"))
        self.recorder = Recorder()
        self.store = ManualStore()
        self.queues = Queues(self.store)
        self.journal = Journal()
        self.ids = Ids()
        self.past = PastTraffic()
        self.sockets: list[Loopback] = []
        self.laters: list[tuple[float, Callable[[], None]]] = []
        self.own: dict[str, str] = {}
        self.is_store_held = False  # it does not answer
        self.connection_log = ConnectionLog(
            self.clock, self.later, ConnectionLines(LineRate(100, 10.0), is_written=True)
        )
        self.usage_store = UsageStore(path / "usage.db", self.clock, lambda _name, _text: None)
        pool, observer, queues = cast("Any", run), cast("Any", self.recorder), cast("Any", self.queues)
        settings = settings or Config(auth=Auth(failure_reply_ms=0))
        brokers, factory = late_brokers()
        planes = compose_control(
            PlaneDependencies(
                settings=settings,
                clock=self.clock,
                later=self.later,
                run=pool,
                hooks=hooks or Hooks(),
                observer=observer,
                connection_log=self.connection_log,
                authenticator=Authenticator(self.accounts, pool, self.clock, PEPPER, observer, AuthSettings()),
                store=self.store,
                limits=PlaneLimits(),
                message_ids=MessageIds(self.clock),
                brokers=brokers,
                queues=queues,
                queued=lambda _id: TenantUsage(0, 0),
                journal=self.journal,
                owner=b"w",
                make_cluster=lambda _plane: cluster or SingleHub(),
                make_routes=make_routes,
                make_directory=partial(make_directory, brokers),
                will_keeper=make_will_keeper(brokers),
            )
        )
        self.plane = self.store.plane = planes.plane
        self.control: ControlPlane = planes.control_plane
        self.hub: Hub = planes.hub
        self.sessions = planes.hub.sessions
        factory.bind(
            BrokerFactory(
                shared=planes.shared,
                hooks=self.hub.hooks,
                observer=observer,
                usage=Usage(self.usage_store, self.clock),
                past=self.past,
                queues=queues,
                retained=cast("Any", retained or NoRetained()),
                queue_ids=cast("Any", self.ids),
                device_limits=self._device_limits,
                backlog_bytes=lambda: self.hub.settings.overload.session_backlog_bytes,
                damaged=uncounted,
            )
        )

    async def _device_limits(self, _tenant_id: int) -> dict[str, str]:
        return self.own

    def close(self) -> None:
        self.usage_store.close()

    # --- the test's side

    @property
    def acme(self) -> TenantBroker:
        """The broker of `acme`; it is made now if need be."""
        broker: TenantBroker = now(self.hub.brokers.broker(self.accounts.tenants["acme"]))
        return broker

    def session(self, client_id: str) -> Session:
        session: Session = self.acme.plane.sessions[client_id]
        return session

    def used(self, quota: Quota) -> int:
        return int(self.acme.allowance.ledger.used(quota))

    def limit(self, limits: str) -> None:
        """Replace the limits of `acme` before its broker is made."""
        self.accounts.add(TenantRecord(7, "acme", rules=(EVERYTHING,), limits=limits))

    def share_quota(self) -> OtherHubs:
        """From now on other hubs serve `acme` too."""
        others = OtherHubs()
        self.acme.allowance._shared = cast("Any", others)
        return others

    def open_connection(self, version: int = 5) -> Client:
        return Client(0, version, stream=Loopback(self))

    def ask(self, client_id: str = "c", version: int = 5, username: str = "acme/dev1", **options: Any) -> Client:
        """Send CONNECT and take the CONNACK, whatever it says."""
        client = self.open_connection(version)
        client.client_id = client_id
        options.setdefault("keep_alive", 65_535)
        client.connack = client.connect(client_id, username, **options)
        return client

    def join(self, client_id: str = "c", version: int = 5, **options: Any) -> Client:
        """Connect successfully."""
        client = self.ask(client_id, version, **options)
        assert client.connack.code == 0, client.connack
        return client

    def later(self, seconds: float, call: Callable[[], None]) -> None:
        self.laters.append((self.clock.monotonic() + seconds, call))

    def settle(self) -> None:
        """The store answers until it has nothing to do; every batch is written."""
        self.plane.tick()
        while self.store.waiting and not self.is_store_held:
            self.store.commit_all()
            self.plane.tick()
        self.plane.end_batch()
        for socket in self.sockets:
            socket.look()
        self.plane.end_batch()

    def pass_time(self, seconds: float) -> None:
        """Let time pass at once; what was to be done meanwhile is done at its end."""
        self.clock.advance(seconds)
        due = [call for at, call in self.laters if at <= self.clock.monotonic()]
        self.laters = [(at, call) for at, call in self.laters if at > self.clock.monotonic()]
        for call in due:
            call()
        now(self.sessions.run_deadlines())
        self.settle()


def plugged(**functions: Callable[..., Any]) -> Hooks:
    """Hooks with these functions, by place."""
    return Hooks([PlugIn(place, f"test:{place}", function) for place, function in functions.items()])
