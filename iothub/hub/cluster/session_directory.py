"""The session directory of a hub with links: the lock of this hub first, then the hub that owns the key, as `iothub.peers.directory` asks it.

Knows no frame and no session rules. While no other hub is there, the locks alone decide.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Any

from twisted.internet.defer import Deferred, TimeoutError

from iothub.base import log
from iothub.base.clock import SystemClock, WholeClock
from iothub.base.errors import IotHubError, UnavailableError
from iothub.engine.state import Session
from iothub.hub.cluster.peer_receiver import PeerReceiver
from iothub.hub.cluster.session_locks import Hold, SessionLocks
from iothub.peers.directory import Directory
from iothub.peers.frames import FrameType
from iothub.peers.ports import Announcer, PeerId
from iothub.peers.view import Key, View
from iothub_services.sessions.manager import SessionManager
from iothub_services.sessions.port import Purpose
from iothub_tenants.broker.broker import TenantBroker
from iothub_tenants.broker.brokers import Brokers

HOLD_S = 5.0
"""So long a CONNECT waits for other hubs, to close the client there or to answer at all: better none than two."""


class PeerDirectory(PeerReceiver[Directory]):
    """Fulfils `SessionDirectory`, and `Clients` of the directory. On the reactor thread.

    Invariant: at this hub one at a time works with a key: whoever has its lock.
    """

    def __init__(
        self,
        links: Announcer,
        me: Callable[[], PeerId],
        view_version: Callable[[], int],
        brokers: Brokers,
        sessions: Callable[[], SessionManager],
        reactor: Any,
        clock: WholeClock = SystemClock(),  # noqa: B008 - it has no state
        on_view: Callable[[], None] = lambda: None,
    ) -> None:
        """`view_version`: of who there is, as of this hub's last look at the accounts. `on_view`: another hub has said how it sees that.

        `clock`: by which clients are `connected_at_ms`, too.
        """
        super().__init__(lambda: Directory(me(), links, self, clock, partial(reactor.callLater, 0), wall=clock.wall))
        self._me = me
        self._view_version = view_version
        self._on_view = on_view
        self._brokers = brokers
        self._sessions = sessions
        self._reactor = reactor
        self._locks = SessionLocks()
        self.given_up = Counter(dict.fromkeys(("logged", "unlogged", "defect"), 0))  # for the metric
        self._log = log.get(__name__)

    # --- SessionDirectory

    def holding(self, tenant_id: int, client_id: str, purpose: Purpose = Purpose.CONNECT) -> Hold:
        return Hold(self, (tenant_id, client_id), purpose)

    def left(self, tenant_id: int, client_id: str) -> None:
        if self._core is not None:
            self._core.left((tenant_id, client_id))

    def acquire(self, key: Key, purpose: Purpose = Purpose.CONNECT) -> Awaitable[float] | None:
        turn = self._locks.acquire(key)
        return None if turn is None and self._core is None else self._acquire_among_hubs(turn, key, purpose)

    async def _acquire_among_hubs(self, turn: Deferred[float] | None, key: Key, purpose: Purpose) -> float:
        if turn is not None:
            await turn
        directory = self._core
        if directory is None:
            return 0.0
        if purpose is Purpose.DISCARD:
            directory.use(key)
            return 0.0
        try:
            return await self._ask(directory, key, takes=purpose is Purpose.CONNECT)
        except UnavailableError:
            self._locks.give(key)
            raise

    async def _ask(self, directory: Directory, key: Key, *, takes: bool) -> float:
        answer: Deferred[float | None] = Deferred()
        directory.hold(key, answer.callback, takes=takes)
        if not answer.called:
            answer.addTimeout(HOLD_S, self._reactor)
        try:
            written_s = await answer
        except TimeoutError:
            directory.give_up(key)
            raise UnavailableError(f"the other hubs did not give up the client within {HOLD_S:.0f} s") from None
        if written_s is None:
            raise UnavailableError("the client is connected to another hub")
        return written_s

    def give(self, key: Key) -> None:
        """The work with a key is done."""
        if self._core is not None:
            self._core.let_go(key)
        self._locks.give(key)

    # --- links

    def frame(self, peer: PeerId, frame_type: FrameType, body: bytes) -> None:
        super().frame(peer, frame_type, body)
        if frame_type is FrameType.VIEW:
            self._on_view()

    def members(self, peers: Sequence[PeerId]) -> None:
        """Say which other hubs there are, at each look at the accounts."""
        if peers or self._core is not None:
            self._made().set_view(View(self._view_version(), [self._me(), *peers]))

    # --- Clients

    def is_connected(self, key: Key) -> bool:
        found = self._find(key)
        return found is not None and found[1].connection is not None

    def connected_at_ms(self, key: Key) -> int:
        found = self._find(key)
        return 0 if found is None or found[1].connection is None else found[1].connected_at_ms

    def connected_keys(self) -> Iterable[Key]:
        """With those whose Wills are being sent: this hub has them until the log says that they are stored."""
        for session in self._sessions().sending_wills:
            yield session.tenant.tenant_id, session.client_id
        for broker in list(self._brokers):
            for session in list(broker.plane.sessions.awake.values()):
                if session.connection is not None:
                    yield broker.tenant_id, session.client_id

    def keys_in_use(self) -> Iterable[Key]:
        return list(self._locks.keys())

    def leave(self, key: Key, on_left: Callable[[bool], None]) -> None:
        found = self._find(key)
        if found is None:
            on_left(True)  # it has ended while this hub had the key: what was awaited for that is in the log
        else:
            Deferred.fromCoroutine(self._give_way(*found, on_left))

    def hurry(self, key: Key) -> None:
        found = self._find(key)
        if found is not None:
            self._sessions().hurry(found[1])

    async def _give_way(self, broker: TenantBroker, session: Session, on_left: Callable[[bool], None]) -> None:
        """A log that does not answer holds up no other hub for ever: that one reads it, too, and finds it as silent. Nor does a defect."""
        result = "logged"
        try:
            await self._sessions().give_way(broker, session)
            await broker.subscriptions_known(session)
        except IotHubError as error:
            result = "unlogged"
            self._log.warning("client given up to another hub, its end is not logged yet", cause=str(error))
        except Exception as error:  # edge: a defect with one client must not keep its key for ever
            result = "defect"
            self._log.error("defect while a client was given up to another hub", exc_info=error)
        self.given_up[result] += 1
        on_left(session.is_persistent)

    def _find(self, key: Key) -> tuple[TenantBroker, Session] | None:
        broker = self._brokers.present(key[0])
        session = None if broker is None else broker.plane.sessions.get(key[1])
        return None if broker is None or session is None else (broker, session)
