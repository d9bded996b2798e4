"""This hub's links to the others, from its joining to its end: their sockets, their clock, and what is known of each hub.

Knows no frame and no session. What travels is registered by whoever takes it; who there is comes from the accounts' rows, once a second.

Invariants: before `begin` and after `close` nothing of it is open and no timer runs; one runs only while there is a hub to link or somebody who
has connected.
"""

from __future__ import annotations

import math
import random
import socket
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from iothub.base.clock import BootClock, SystemClock
from iothub.base.errors import UnavailableError
from iothub.base.units import Endpoint
from iothub.config.sections import Config
from iothub.hub.cluster.link_alarms import LinkAlarms
from iothub.hub.cluster.member_events import MemberEvents
from iothub.net.listeners import DelayedCall, Listeners
from iothub.peers.addresses import UnixPath, parse_address
from iothub.peers.cluster_clock import ClusterClock
from iothub.peers.dialing import Dialler
from iothub.peers.frames import FrameType
from iothub.peers.link import CLOCK_TRIP_S, Link, OnAcknowledged
from iothub.peers.link_files import LinkFiles
from iothub.peers.links import Links
from iothub.peers.listening import LinkAcceptor, open_listening
from iothub.peers.membership import JOINING, MemberLinks
from iothub.peers.ports import Identity, LinkSettings, LinkStatus, PeerAddress, PeerId, Receiver
from iothub.peers.ticking import Ticking
from iothub_services.auth.port import Run
from iothub_services.metrics.alarms import Alarms
from iothub_tenants.accounts.hubs import HubRow

if TYPE_CHECKING:
    from iothub.peers.certificates import Credentials

OnMembers = Callable[[Sequence[PeerId]], None]
OnTick = Callable[[], float]
"""Do what is due with each tick of the links, and return when something is due next if no link changes, of `boottime`."""


def _do_nothing() -> None:
    """Nobody asks."""


def _never_due() -> float:
    return math.inf


CLOCK_LOOK_S = 1.0
_WILDCARDS = ("0.0.0.0", "::")  # noqa: S104 - not bound here


@dataclass(frozen=True, slots=True)
class LinkParts:
    """What links are made of. `files`: None: they need no certificates. `installation`: its id, known when the hub joins."""

    settings: Config
    files: LinkFiles | None
    version: str
    installation: Callable[[], str]
    listeners: Callable[[], Listeners]
    reactor: Any
    run: Run
    alarms: Alarms
    clock: BootClock = SystemClock()  # noqa: RUF009 - it has no state
    cluster_clock: ClusterClock = field(default_factory=lambda: ClusterClock(SystemClock(), SystemClock().boottime))


class PeerLinks:
    """On the reactor thread."""

    def __init__(self, parts: LinkParts) -> None:
        """Raises ConfigError: the certificates cannot be used."""
        self._parts = parts
        self._cluster = parts.settings.cluster
        self._settings = LinkSettings(self._cluster.frame_bytes, self._cluster.link_bytes)
        self._credentials = self._load()
        self._alarms = LinkAlarms(parts.alarms, parts.clock, lambda: self._on_told_gone())
        self.events = MemberEvents(self._alarms)
        self._receivers: list[tuple[tuple[FrameType, ...], Receiver, bool]] = []
        self._watchers: list[OnAcknowledged] = []
        self._on_members: list[OnMembers] = []
        self._listening: socket.socket | None = None
        self._links: Links | None = None
        self._acceptor: LinkAcceptor | None = None
        self._dialler: Dialler | None = None
        self._ticking = Ticking(parts.clock, self._tick, self._set_timer)
        self._timer: DelayedCall | None = None
        self._on_tick: OnTick = _never_due
        self._on_told_gone: Callable[[], None] = _do_nothing
        self.cluster_clock = parts.cluster_clock
        self._clock_due = 0.0
        self.address = ""  # where other hubs connect, since `open`
        self._me: PeerId | None = None
        self._awaited: list[PeerId] = []  # the hubs that serve clients
        self._serves = False

    def register(self, types: Iterable[FrameType], receiver: Receiver, *, is_waited_for: bool = False) -> None:
        """As `iothub.peers.links.Links.register`; at composition."""
        self._receivers.append((tuple(types), receiver, is_waited_for))

    def watch(self, on_acknowledged: OnAcknowledged) -> None:
        """As `iothub.peers.links.Links.watch`; at composition."""
        self._watchers.append(on_acknowledged)

    def watch_members(self, on_members: OnMembers) -> None:
        """Call with the hubs that can be linked, at each look at the accounts; at composition."""
        self._on_members.append(on_members)

    # --- the hub's life

    def open(self) -> str:
        """Take the port, so that another program's use of it ends the start at once; return where other hubs connect. Raises UnavailableError."""
        self._listening = open_listening(self._cluster.listen)
        place = parse_address(self._cluster.listen)
        self.address = self._cluster.advertise or self._cluster.listen
        if not self._cluster.advertise and not isinstance(place, UnixPath) and place.host in _WILDCARDS:
            self.address = str(Endpoint(socket.gethostname(), place.port))
        return self.address

    def begin(
        self,
        incarnation: int,
        on_tick: OnTick = _never_due,
        on_told_gone: Callable[[], None] = _do_nothing,
    ) -> MemberLinks:
        """Link, and let others link: the hub has joined as this incarnation.

        `on_tick`: called with each tick of the links. `on_told_gone`: a hub answers that it goes on without this incarnation.
        """
        parts, node, listening = self._parts, self._parts.settings.node, self._listening
        self._me = PeerId(node.number, incarnation)
        if listening is None:
            raise AssertionError("the port of the links is not open")
        listeners = parts.listeners()
        server, client = self._contexts()
        dialler = Dialler(listeners.transports, parts.reactor, parts.run, client, self._alarms.not_connected)
        links = Links(
            Identity(parts.installation(), node.number, incarnation, node.name, parts.version),
            self._settings,
            parts.clock,
            random.Random(),  # noqa: S311 - jitter of dials
            dialler,
            self.events,
            parts.cluster_clock.tell,
            self._ticking.changed,
        )
        for types, receiver, is_waited_for in self._receivers:
            links.register(types, receiver, is_waited_for=is_waited_for)
        for watcher in self._watchers:
            links.watch(watcher)
        acceptor = LinkAcceptor(server, parts.reactor, links.accepted, self._alarms.not_accepted)
        self._links, self._dialler, self._acceptor, self._listening = links, dialler, acceptor, None
        self._on_tick = on_tick
        self._on_told_gone = on_told_gone
        listeners.begin_ticks()  # ends of connections are seen to before clients come, too
        listeners.transports.listen(listening, acceptor)
        return links

    def members(self, rows: Sequence[HubRow], *, serves: bool) -> None:
        """Say which other hubs there are, by the accounts: those that live, and those that are gone and are not gone on without yet.

        `serves`: this hub is up.
        """
        self._serves = serves
        if self._links is not None:
            linkable = [row for row in rows if row.address]
            self._links.members([PeerAddress(row.number, row.incarnation, row.name, row.address) for row in linkable])
            self._awaited = [PeerId(row.number, row.incarnation) for row in linkable if row.state != JOINING]
            node = self._parts.settings.node
            self.events.judge_view(node.number, node.name, [peer.node for peer in self._awaited])
            for on_members in self._on_members:
                on_members(self._awaited)
            self._alarms.judge(self._links.status())

    def judge_gone(self, rows: Sequence[HubRow]) -> None:
        """Say which other hubs were ever there, by the accounts: some are gone."""
        self._alarms.judge_gone(rows)
        self.events.judge_gone(rows)

    def close(self) -> None:
        """End every link; what was written last still leaves, if the sockets are given a turn."""
        self._cancel_timer()
        if self._dialler is not None:
            self._dialler.close()
        if self._links is not None:
            self._links.close()
        if self._acceptor is not None:
            self._parts.listeners().transports.stop_accepting(self._acceptor)
            self._acceptor.close()
        if self._listening is not None:
            self._listening.close()
        self._links = self._listening = None

    def prepare(self) -> Callable[[], None]:
        """Read the certificates again; the answer puts them to use, for links that begin from then on.

        Raises:
            ConfigError: they cannot be used; nothing has changed.
        """
        credentials = self._load()

        def use() -> None:
            self._credentials = credentials
            server, client = self._contexts()
            if self._acceptor is not None and self._dialler is not None:
                self._acceptor.use(server)
                self._dialler.use(client)

        return use

    # --- what others ask

    @property
    def has_certificate(self) -> bool:
        return self._credentials is not None

    @property
    def me(self) -> PeerId:
        """This hub, since `begin`."""
        if self._me is None:
            raise AssertionError("the hub has not joined")
        return self._me

    def send(self, peer: PeerId, frame_type: FrameType, body: bytes) -> int:
        """As `Links.send`. Raises UnavailableError."""
        return self.link_to(peer).send(frame_type, body)

    def announce(self, peer: PeerId, frame_type: FrameType, body: bytes) -> int:
        """As `Links.announce`. Nothing while this hub starts or stops."""
        return 0 if self._links is None else self._links.announce(peer, frame_type, body)

    def link_to(self, peer: PeerId) -> Link:
        """As `Links.link_to`. Raises UnavailableError."""
        if self._links is None:
            raise UnavailableError("this hub has no links now: it starts or stops")
        return self._links.link_to(peer)

    def linked(self) -> tuple[PeerId, ...]:
        """As `Links.linked`."""
        return () if self._links is None else self._links.linked()

    def up(self) -> tuple[PeerId, ...]:
        return () if self._links is None else self._links.up()

    def is_full(self, peer: PeerId) -> bool:
        return self._links is not None and self._links.is_full(peer)

    def unlinked(self) -> bool:
        """Tell whether there is a hub that is waited for, and has no link."""
        links = self._links
        return links is not None and not all(map(links.is_linked, self._awaited))

    def is_clock_wrong(self) -> bool:
        """Tell whether this machine's clock is not the other hubs', or a linked one has not said what time it is there."""
        links = self._links
        if links is None:
            return False
        self._judge_clock(links)
        return not (self.cluster_clock.is_right and links.are_clocks_known())

    @property
    def needs_third_clock(self) -> bool:
        """Tell whether the hubs that start cannot say which of their clocks is right."""
        return self.cluster_clock.needs_third

    def note_third_clock(self, wall_s: float, asked_at: float) -> None:
        """Note the time of somebody who is no hub. `asked_at`: of `boottime`."""
        now = self._parts.clock.boottime()
        if now - asked_at <= CLOCK_TRIP_S:
            self.cluster_clock.note_third(wall_s - (asked_at + now) / 2)

    @property
    def clock_fault(self) -> str:
        """What is wrong with this machine's clock; empty: nothing."""
        return self._alarms.clock_fault

    def status(self) -> list[LinkStatus]:
        return [] if self._links is None else self._links.status()

    def trouble(self, node: int) -> str:
        """Return why a hub is not linked, as far as that is known here; empty: it is, or was never tried."""
        return self._alarms.trouble(node)

    def is_refused(self, node: int) -> bool:
        """As `LinkAlarms.is_refused`."""
        return self._alarms.is_refused(node)

    # --- private

    def _judge_clock(self, links: Links) -> None:
        clocks = links.clocks()
        serving = [clocks.pop(peer) for peer in self._awaited if peer in clocks]
        self.cluster_clock.judge(serving, list(clocks.values()), serves=self._serves)

    def _load(self) -> Credentials | None:
        files = self._parts.files
        if files is None:
            return None
        from iothub.peers import certificates  # cryptography: only where links need it

        return certificates.load(files, self._parts.settings.node.number)

    def _contexts(self) -> tuple[Any, Any]:
        credentials = self._credentials
        return (None, None) if credentials is None else (credentials.server, credentials.client)

    def _set_timer(self, at: float) -> None:
        self._cancel_timer()
        if self._links is not None:
            self._timer = self._parts.reactor.callLater(max(0.0, at - self._parts.clock.boottime()), self._ticking.run)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None

    def _tick(self, now: float) -> float:
        self._timer, links = None, self._links
        if links is None:
            return math.inf
        links.tick(now)
        if now >= self._clock_due:
            self._clock_due = now + CLOCK_LOOK_S
            self._judge_clock(links)
            self._alarms.judge_clock(self.cluster_clock)
        due = self._on_tick()
        return min(due, links.due(), self._clock_due) if links.needs_ticks() else due
