"""Persistent sessions with Wills at several hubs, over real control planes and directories, and what must be true of their Wills.

Knows no link fault and no membership: frames stay in order, and a hub that is killed has one successor, as the accounts have it. Each hub writes
to the log and reads it at its own pace; what it has not written dies with it. A schedule is its seed.

A Will is due when its connection has been lost for its Will Delay, or for the Session Expiry Interval if that is shorter, or when its session
ends [MQTT-3.1.2-8], [MQTT-3.1.3-9], §3.1.3.2.2. Two hubs may publish it if one of them was killed: with one message id, so that queues keep one.

A Will whose client did not wait for it any more (`iothub_wills_overtaken_total`) may be lost with its hub.

Every second schedule is aimed: what happens while a Will is under way is that its hub is killed, or that its client comes to another one.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

from twisted.internet.defer import Deferred

from iothub.base.errors import UnavailableError
from iothub.engine.message import Message
from iothub.engine.state import Place, Session
from iothub.peers.ports import PeerId
from iothub.records.events import Event, hub_name
from iothub_services.sessions.port import HERE, SingleHub
from iothub_services.sessions.wills import Wills
from iothub_tenants.background.remote_sessions import RemoteSessions
from iothub_tenants.broker.wills import Wills as PublishedWills
from tests.simulation.simulation import ViolationError
from tests.support.clients import property_names as names
from tests.support.clients.mqtt_clients import Client
from tests.support.in_process.clustered_harness import BootTime, ClusteredHub
from tests.support.in_process.control_harness import now, run
from tests.support.in_process.routed_hubs import Net

CLIENTS = 2
MOST_HUBS = 4
STEPS = 70
DELAYS_S = (0, 0, 2, 5, 60)
EXPIRIES_S = (4, 30)
SILENT_S = (0.0, 6.0)  # from the end of a hub until another one has its sessions
HEAL_S = 150
_HANDED_S = 0.001
_OVER = "the schedule is over"


@dataclass(eq=False)
class Connection:
    """One CONNECT with a Will. `end`: "" while it is there; `clean`: DISCONNECT with 0x00, `hub`: its hub was killed, `taken`: by a later one.

    `is_settled`: False if nobody can say what became of its CONNECT or of one after it: refused, or its hub was killed before CONNACK.
    """

    number: int
    client_id: str
    hub: LoggedHub
    is_clean: bool
    delay_s: int
    expiry_s: int
    sent_at: float
    client: Client
    accepted_at: float = 0.0
    is_present: bool = False
    end: str = ""
    ended_at: float = 0.0
    is_settled: bool = True
    is_overtaken: bool = False
    ids: set[bytes] = field(default_factory=set)
    fired: list[LoggedHub] = field(default_factory=list)  # by whom
    stored: list[LoggedHub] = field(default_factory=list)  # by whom

    @property
    def due_at(self) -> float:
        return self.ended_at + min(self.delay_s, self.expiry_s)

    def __repr__(self) -> str:
        return f"Will {self.number} of {self.client_id} at {self.hub.number} (delay {self.delay_s} s, expiry {self.expiry_s} s)"


class LoggedHub(SingleHub):
    """One hub. Fulfils `Cluster`: what it asks of the log is answered when its turn comes."""

    is_alone = False

    def __init__(self, sim: KeptWills, peer: PeerId, net: Net[Any]) -> None:
        self.number = peer.node
        self.is_dead = self._is_over = False
        self._log = sim.log
        self._read = 0
        self._unwritten: deque[tuple[list[Event], Deferred[None] | None]] = deque()
        self._unread: list[Deferred[None]] = []
        self._unstored: deque[Callable[[], None]] = deque()
        self.sending: list[str] = []  # clients whose Wills have fired, until the log says that they are stored
        self.hub = ClusteredHub(net, peer, sim.path, sim.boot, cluster=self)
        self.harness = harness = self.hub.harness
        harness.clock.advance(sim.now)
        registry = SimpleNamespace(tenant_by_id=lambda _id: harness.accounts.tenants["acme"])
        self.remote = RemoteSessions(
            harness.hub, cast("Any", registry), cast("Any", run), lambda: self.name, self.number
        )
        journal = cast("Any", harness.journal)
        journal.record, journal.note = self._record, self._note
        if sim.hubs:
            first = sim.hubs[0].harness
            harness.store.rows, harness.queues.owners = first.store.rows, first.queues.owners
        ids = cast("Any", harness.ids)
        ids.allocate = ids.allocate_nowait = sim.next_queue_id  # they rise for all hubs together

    @property
    def name(self) -> str:
        return hub_name(self.number, 1)

    def place(self, epoch: int) -> Place:
        return Place(HERE, epoch)

    async def catch_up(self, ago_s: float = 0.0) -> None:
        if self._is_over:
            raise UnavailableError(_OVER)
        self._unread.append(Deferred())
        await self._unread[-1]

    async def _record(self, events: list[Event]) -> None:
        if self._is_over:
            raise UnavailableError(_OVER)
        is_written: Deferred[None] = Deferred()
        self._unwritten.append((events, is_written))
        await is_written

    def _note(self, events: list[Event]) -> None:
        self._unwritten.append((events, None))

    @property
    def is_sending(self) -> bool:
        if not self._unstored and not self._unwritten:
            self.sending.clear()
        return bool(self.sending)

    @property
    def has_unwritten(self) -> bool:
        return bool(self._unwritten)

    def store_later(self, done: Callable[[], None]) -> None:
        self._unstored.append(done)

    # --- its turns

    def write(self) -> bool:
        if not self._unwritten:
            return False
        events, is_written = self._unwritten.popleft()
        self._log += [event.written_by(self.name) for event in events]
        if is_written is not None:
            is_written.callback(None)
        return True

    def read(self, most: int = 1 << 30) -> bool:
        page = self._log[self._read : self._read + most]
        self._read += len(page)
        now(self.remote.apply_events(page))
        is_moving = bool(page)
        if self._read == len(self._log):
            is_moving |= bool(self._unread)
            unread, self._unread = self._unread, []
            for waiting in unread:
                waiting.callback(None)
        return is_moving

    def store(self) -> bool:
        if not self._unstored:
            return False
        self._unstored.popleft()()
        return True

    def end(self) -> None:
        """End whatever still waits here, in order: the collector would end a holder of a lock and who waits for it in any order."""
        self._is_over = True
        waiting = [*self._unread, *(is_written for _, is_written in self._unwritten if is_written is not None)]
        for each in waiting:
            each.errback(UnavailableError(_OVER))
        while self._unstored:
            self._unstored.popleft()()
        for _ in range(3):  # one wait may follow another
            self.hub.reactor.advance(60)
            self.harness.pass_time(60)
        self.harness.close()

    def take_over(self, gone: LoggedHub, at: float) -> None:
        """As `iothub.hub.cluster.heartbeat` does, with the log read to its end."""
        self.read()
        now(self.remote.take_over(frozenset([gone.number]), int(at * 1000)))


class KeptWills:
    """Runs one schedule. `log_line`: each event of the run as a line, for a person."""

    def __init__(self, seed: int, path: Path, log_line: Callable[[str], None] | None = None) -> None:
        self.rng = random.Random(seed)
        self._is_aimed = seed % 2 == 1
        self.path = path
        self.boot = BootTime()
        self.now = 0.0
        self.log: list[Event] = []
        self.hubs: list[LoggedHub] = []  # those that were killed, too
        self.connections: list[Connection] = []
        self._orphaned: list[
            tuple[LoggedHub, float, float]
        ] = []  # with when it was killed, and when its successor knows
        self._successors: dict[LoggedHub, LoggedHub] = {}
        self._firing_while_there: list[Connection] = []
        self._faults: list[str] = []
        self._log_line = log_line
        self._net: Net[ClusteredHub] = Net(0, lambda net, peer: self._make(net, peer))
        self._base = 0.0
        self._last_queue_id = 0

    def next_queue_id(self) -> int:
        self._last_queue_id += 1
        return self._last_queue_id

    def run(self) -> None:
        """Raises ViolationError."""
        with (
            mock.patch.object(PublishedWills, "fire", self._publisher()),
            mock.patch.object(Wills, "_note_overtaken", self._overtaken()),
        ):
            for _ in range(self.rng.choice((2, 2, 3))):
                self._add_hub()
            self._settle()
            for _ in range(STEPS):
                self._step()
                self._look()
            self._heal()
            self._check_end()
            faults = list(self._faults)
            for hub in self.hubs:
                hub.end()
        if faults:
            raise ViolationError(faults[0])

    # --- what happens

    def _step(self) -> None:
        if self._is_aimed and self._aim():
            return
        hub = self.rng.choice(self._living())
        kind = self.rng.choices(
            ("connect", "lose", "clean", "write", "read", "store", "deliver", "pass", "kill", "add", "settle"),
            (8, 7, 2, 14, 12, 8, 20, 12, 2, 1, 6),
        )[0]
        open_ones = [each for each in self.connections if each.accepted_at and not each.end]
        if kind == "connect":
            self._connect(hub)
        elif kind in ("lose", "clean") and open_ones:
            self._close(self.rng.choice(open_ones), kind)
        elif kind == "write":
            hub.write()
        elif kind == "read":
            hub.read(self.rng.choice((1, 3, 1 << 30)))
        elif kind == "store":
            hub.store()
        elif kind == "deliver":
            self._deliver()
        elif kind == "pass":
            self._pass(self.rng.choice((0.1, 1.0, 3.0)))
        elif kind == "kill" and len(self._living()) > 1:
            self._kill(hub)
        elif kind == "add" and len(self.hubs) < MOST_HUBS:
            self._add_hub()
        elif kind == "settle":
            self._settle()

    def _aim(self) -> bool:
        """Do something at a hub that is sending a Will, or has just sent one. False: there is none, or it is left alone."""
        firing = [hub for hub in self._living() if hub.is_sending]
        kind = self.rng.choices(("kill", "connect", "store", "write", "deliver", ""), (5, 8, 4, 10, 20, 10))[0]
        if not firing or not kind:
            return False
        hub = self.rng.choice(firing)
        if kind == "kill" and len(self._living()) > 1:
            self._kill(hub)
        elif kind == "connect":
            self._connect(self.rng.choice(self._living()), self.rng.choice(hub.sending))
        elif kind == "store":
            hub.store()
        elif kind == "write":
            hub.write()
        else:
            self._deliver()
        return True

    def _connect(self, hub: LoggedHub, client_id: str = "") -> None:
        rng, number = self.rng, len(self.connections)
        client_id = client_id or f"c{rng.randrange(CLIENTS)}"
        waiting = [each for each in self.connections if each.client_id == client_id and self._is_asking(each)]
        if waiting:
            return  # a client awaits its CONNACK
        client = hub.harness.open_connection()
        delay_s, expiry_s, is_clean = rng.choice(DELAYS_S), rng.choice(EXPIRIES_S), rng.random() < 0.2
        made = Connection(number, client_id, hub, is_clean, delay_s, expiry_s, self.now, client)
        self.connections.append(made)
        self._note(f"{client_id} connects to {hub.number}: {made}{', Clean Start' if is_clean else ''}")
        client.send(
            client.connect_bytes(
                client_id,
                "acme/dev1",
                clean=is_clean,
                keep_alive=0,
                props=[(names.SESSION_EXPIRY, expiry_s)],
                will=(f"will/{client_id}", b"%d" % number, 1, False),
                will_props=[(names.WILL_DELAY, delay_s)],
            )
        )

    def _close(self, connection: Connection, kind: str) -> None:
        self._note(f"{connection} ends: {kind}")
        self._end(connection, "clean" if kind == "clean" else "lost")
        if kind == "clean":
            connection.client.send(b"\xe0\x00")
        connection.client.stream.close()

    def _kill(self, hub: LoggedHub) -> None:
        self._note(f"hub {hub.number} is killed")
        hub.is_dead = True
        self._net.kill(hub.hub)
        self._orphaned.append((hub, self.now, self.now + self.rng.choice(SILENT_S)))
        for each in self.connections:
            if each.hub is not hub:
                continue
            if each.end == "clean" and hub.has_unwritten:
                each.is_settled = False  # nobody else knows that it said DISCONNECT
            if self._is_asking(each):
                self._end(each, "hub")
                self._unsettle(each)
            elif not each.end:
                self._end(each, "hub")

    def _add_hub(self) -> None:
        number = len(self.hubs) + 1
        self._net.add(PeerId(number, 1))
        self.hubs[-1].read()
        self._note(f"hub {number} comes")
        self._members()

    def _make(self, net: Net[ClusteredHub], peer: PeerId) -> ClusteredHub:
        made = LoggedHub(self, peer, net)
        self.hubs.append(made)
        self._base = made.harness.clock.wall() - self.now
        return made.hub

    def _members(self) -> None:
        ids = list(self._net.hubs)
        for hub in self._net.hubs.values():
            hub.routes.members(each for each in ids if each != hub.id)

    def _deliver(self) -> None:
        self._net.turn()
        ways = list(self._net._ways)
        if ways:
            way = self.rng.choice(ways)
            self._net.deliver(*way)
            self._net.acknowledge(*way)

    def _pass(self, seconds: float) -> None:
        self.now += seconds
        self.boot.now += seconds
        for hub in self._living():
            hub.hub.reactor.advance(seconds)
            hub.harness.pass_time(seconds)
        for orphaned in list(self._orphaned):
            gone, killed_at, known_at = orphaned
            if known_at <= self.now:
                self._orphaned.remove(orphaned)
                self._members()
                successor = self._living()[0]
                self._note(f"hub {successor.number} takes over from hub {gone.number}")
                self._take_over(successor, gone, killed_at)

    def _take_over(self, successor: LoggedHub, gone: LoggedHub, killed_at: float) -> None:
        """What the successor has taken over and not written is its successor's."""
        for each in [each for each, known in self._successors.items() if known is gone]:
            self._take_over(successor, each, killed_at)
        self._successors[gone] = successor
        successor.take_over(gone, self._base + killed_at)

    def _settle(self) -> None:
        is_moving = True
        while is_moving:
            is_moving = False
            self._net.settle()
            for hub in self._living():
                hub.hub.reactor.advance(0)
                is_moving |= any([hub.write(), hub.read(), hub.store()])
                hub.harness.settle()
            self._look()

    def _heal(self) -> None:
        for _ in range(HEAL_S):
            self._settle()
            self._pass(1.0)
        self._settle()
        for each in [each for each in self.connections if each.accepted_at and not each.end]:
            self._close(each, "lose")
        for _ in range(HEAL_S):
            self._settle()
            self._pass(1.0)
        self._settle()

    # --- what is seen

    def _look(self) -> None:
        """What has come to the clients."""
        for each in self._firing_while_there:
            if not cast("Any", each.client.stream).transport.is_closed:
                self._broken(f"{each} is published while its client is connected")
        self._firing_while_there.clear()
        for each in self.connections:
            if each.hub.is_dead or each.end == "refused":
                continue
            data = cast("Any", each.client.stream).transport.take()
            if data[:1] == b"\x20" and not each.end:
                self._answered(each, data)
            if cast("Any", each.client.stream).transport.is_closed and not each.end:
                self._note(f"{each} is closed by its hub")
                if each.accepted_at:
                    self._end(each, "lost")
                else:
                    self._end(each, "refused")
                    self._unsettle(each)

    def _answered(self, connection: Connection, data: bytes) -> None:
        if data[3]:
            self._note(f"{connection} is refused: {data[3]:#x}")
            self._end(connection, "refused")
            self._unsettle(connection)
            return
        connection.accepted_at, connection.is_present = self.now, bool(data[2])
        self._note(f"{connection} is accepted, Session Present {data[2]}")
        for former in self._of_client(connection, before=True):
            if not former.end:
                self._end(former, "taken")

    def _publisher(self) -> Callable[..., None]:
        """What stands in for the publishing of Wills: one is stored when its hub has its turn."""
        sim = self

        def fire(wills: PublishedWills, _session: Session, message: Message, on_done: Callable[[], None]) -> None:
            brokers = [(each, each.harness.hub.brokers.present(7)) for each in sim.hubs]
            [hub] = [each for each, broker in brokers if broker is not None and broker.plane is wills._tenant]
            connection = sim.connections[int(message.payload)]
            sim._note(f"hub {hub.number} fires {connection}")
            sim._fired(connection)
            connection.fired.append(hub)
            hub.sending.append(connection.client_id)

            def stored() -> None:
                sim._stored(hub, connection, message.message_id)
                on_done()

            hub.store_later(stored)

        return fire

    def _overtaken(self) -> Callable[..., None]:
        sim = self

        def note_overtaken(_wills: Wills, session: Session) -> None:
            for each in sim.connections:
                each.is_overtaken |= each.client_id == session.client_id

        return note_overtaken

    def _fired(self, connection: Connection) -> None:
        later = self._of_client(connection, before=False)
        if not connection.is_settled:
            return
        if connection.end == "clean":
            self._broken(f"{connection} is published after DISCONNECT with Reason Code 0x00")
        may_have_ended = any(each.is_clean for each in later)
        if not connection.end and not later:
            self._firing_while_there.append(connection)  # its hub may be closing it just now
        if connection.end in ("lost", "hub") and self.now < connection.due_at - _HANDED_S and not may_have_ended:
            self._broken(f"{connection} is published {connection.due_at - self.now:.1f} s before it is due")
        for each in later:
            if self._is_cancelled_by(connection, each):
                self._broken(f"{connection} is published though its client came back in time")

    def _stored(self, hub: LoggedHub, connection: Connection, message_id: bytes) -> None:
        connection.ids.add(message_id)
        if len(connection.ids) > 1:
            self._broken(f"{connection} is published under two message ids")
        if any(not each.is_dead for each in connection.stored):
            self._broken(f"{connection} is published by hub {hub.number}, and before by one that lives")
        connection.stored.append(hub)

    def _broken(self, what: str) -> None:
        """Who calls this is called by the product, which may catch what is raised."""
        self._note(f"BROKEN: {what}")
        self._faults.append(what)

    def _check_end(self) -> None:
        for each in self.connections:
            later = self._of_client(each, before=False)
            is_due = each.accepted_at and each.is_settled and each.end in ("lost", "hub", "taken")
            if not is_due or each.stored or self._was_overtaken(each) or self._may_be_cancelled(each, later):
                continue
            self._broken(f"{each} is not published: {each.end} at {each.ended_at:.1f}")

    def _was_overtaken(self, connection: Connection) -> bool:
        """Its client did not wait for it any more, and its hub was killed."""
        return connection.is_overtaken and any(hub.is_dead for hub in connection.fired)

    def _is_cancelled_by(self, connection: Connection, later: Connection) -> bool:
        """The next connection was accepted before the Will was due, and goes on with the session."""
        is_next = bool(later.accepted_at) and later.is_present
        delay_s = min(connection.delay_s, connection.expiry_s)
        return is_next and delay_s > 0 and later.accepted_at < connection.ended_at + delay_s

    def _may_be_cancelled(self, connection: Connection, later: list[Connection]) -> bool:
        """A connection was on its way when the Will came due; or before anybody knew that the hub was killed."""
        answered = [each for each in later if each.accepted_at]
        if not answered or not answered[0].is_present:
            return False  # no, or the session had ended
        delay_s = min(connection.delay_s, connection.expiry_s)
        return delay_s > 0 and (connection.hub.is_dead or answered[0].sent_at <= connection.due_at + _HANDED_S)

    # --- private

    def _living(self) -> list[LoggedHub]:
        return [hub for hub in self.hubs if not hub.is_dead]

    def _is_asking(self, connection: Connection) -> bool:
        return not connection.accepted_at and not connection.end

    def _end(self, connection: Connection, end: str) -> None:
        connection.end, connection.ended_at = end, self.now

    def _unsettle(self, connection: Connection) -> None:
        """It may have got as far as the log, or not."""
        connection.is_settled = False
        for each in self._of_client(connection, before=True):
            each.is_settled = False

    def _of_client(self, connection: Connection, *, before: bool) -> list[Connection]:
        same = [each for each in self.connections if each.client_id == connection.client_id]
        return [each for each in same if (each.number < connection.number) == before and each is not connection]

    def _note(self, text: str) -> None:
        if self._log_line is not None:
            self._log_line(f"{self.now:7.1f} {text}")


def fault_of_kept_wills(seed: int, path: Path, log_line: Callable[[str], None] | None = None) -> str | None:
    """Run one schedule; return what broke, None if nothing did."""
    folder = path / str(seed)
    folder.mkdir()
    try:
        KeptWills(seed, folder, log_line).run()
    except ViolationError as violation:
        return f"seed {seed}: {violation}"
    return None
