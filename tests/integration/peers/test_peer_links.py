"""Two hubs' links on real sockets, as a hub opens and closes them: up both ways, refused by name, and nothing while a hub is alone."""

from __future__ import annotations

import contextlib
import math
import os
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from twisted.internet.defer import Deferred

from iothub.base.clock import SystemClock
from iothub.config.sections import Cluster, Config, Node
from iothub.hub.cluster.member_events import MemberEvent
from iothub.hub.cluster.peer_links import LinkParts, PeerLinks
from iothub.net.backend import Backend
from iothub.net.descriptors import UNLIMITED, Descriptors
from iothub.net.listener_info import listener_info
from iothub.net.listeners import Listeners
from iothub.net.transports import make_transports
from iothub.peers.announced_bans import BAN_TYPES, BanAnnouncer, BanReceiver
from iothub.peers.cluster_clock import ClusterClock
from iothub.peers.commands import TYPES, LinkCommands, PeerAnswer
from iothub.peers.frames import FrameType
from iothub.peers.ports import PeerId
from iothub.records.admin_commands import Json, Reply, Request, Verb
from iothub.testing.echo_plane import EchoPlane
from iothub.testing.reactor_thread import ReactorThread
from iothub_services.auth.failures import Failures, FailureSettings
from iothub_services.metrics.alarms import Alarms
from iothub_tenants.accounts.hubs import JOINING, UP, HubRow
from tests.integration.peers.conftest import Authority
from tests.support.ports import free_port

INSTALLATION = "a" * 32


class Receiver:
    """Notes what arrives."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.gone: list[PeerId] = []

    def frame(self, _peer: PeerId, _type: FrameType, body: bytes) -> None:
        self.bodies.append(body)

    def peer_up(self, peer: PeerId) -> None:
        """Whoever comes is asked what the test asks."""

    def peer_gone(self, peer: PeerId) -> None:
        self.gone.append(peer)


class AheadClock(SystemClock):
    """The clock of a machine that is not set right."""

    def __init__(self, ahead_s: float) -> None:
        self.ahead_s = ahead_s

    def wall(self) -> float:  # type: ignore[override]
        return SystemClock.wall() + self.ahead_s


class Hub:
    """What has links of a hub."""

    def __init__(
        self,
        twin: Backend,
        thread: ReactorThread,
        number: int,
        cluster: Cluster,
        authority: Authority | None,
        installation: str = INSTALLATION,
        ahead_s: float = 0.0,
    ) -> None:
        """`ahead_s`: this machine's clock of the others'."""
        self.thread, self.number = thread, number
        clock, plane = SystemClock(), EchoPlane()
        self.alarms = Alarms(clock)
        transports = make_transports(twin, plane, clock, thread.reactor)
        self.listeners = Listeners(
            [listener_info("tcp")], plane, clock, transports, thread.reactor, Descriptors(UNLIMITED), lambda *_: None
        )
        files = None if authority is None else authority.files(number)
        parts = LinkParts(
            settings=Config(node=Node(number=number, name=f"hub-{number}"), cluster=cluster),
            files=files,
            version="1.0",
            installation=lambda: installation,
            listeners=lambda: self.listeners,
            reactor=thread.reactor,
            run=self._run,
            alarms=self.alarms,
            cluster_clock=ClusterClock(AheadClock(ahead_s), clock.boottime),
        )
        self.links, self.receiver, self.address = PeerLinks(parts), Receiver(), ""
        self.serves = True
        self.links.register([FrameType.ROWS], self.receiver)
        self.ticks = 0
        self.told_gone: list[bool] = []

    def begin(self, incarnation: int = 1) -> HubRow:
        """Join; return the row of this hub."""
        self.address = self.thread.call(self.links.open)
        self.member_links = self.thread.call(
            lambda: self.links.begin(incarnation, self._tick, lambda: self.told_gone.append(True))
        )
        return HubRow(self.number, incarnation, f"hub-{self.number}", 0, 1, address=self.address, version="1.0")

    def _tick(self) -> float:
        self.ticks += 1
        return math.inf

    def meet(self, *rows: HubRow) -> None:
        self.thread.call(
            lambda: self.links.members([row for row in rows if row.number != self.number], serves=self.serves)
        )

    def states(self) -> list[tuple[int, str]]:
        return [(status.peer.node, status.state) for status in self.links.status()]

    def alarm_names(self) -> list[tuple[str, str]]:
        return [(alarm.name.word, alarm.subject) for alarm in self.alarms.active()]

    def close(self) -> None:
        self.thread.call(self.links.close)
        self.thread.call(self.listeners.close)

    async def _run(self, _name: str, call: Callable[..., Any], *args: Any) -> Any:
        return call(*args)


@pytest.fixture
def make(twin: Backend) -> Iterator[Callable[..., Hub]]:
    with ReactorThread() as thread, contextlib.ExitStack() as hubs:

        def make_hub(number: int, cluster: Cluster, authority: Authority | None = None, **options: Any) -> Hub:
            made = Hub(twin, thread, number, cluster, authority, **options)
            hubs.callback(made.close)
            return made

        yield make_hub


def loopback(**options: Any) -> Cluster:
    return Cluster(listen=f"127.0.0.1:{free_port()}", insecure=True, **options)


@pytest.fixture(params=["tls", "insecure", "unix"])
def pair(
    request: pytest.FixtureRequest, make: Callable[..., Hub], authority: Authority, tmp_path: Path
) -> tuple[Hub, Hub]:
    """Hubs 1 and 2, which have read each other's rows."""
    hubs = []
    for number in (1, 2):
        settings = loopback()
        if request.param == "tls":
            settings = replace(settings, insecure=False)
        if request.param == "unix":
            settings = Cluster(listen=f"unix:{tmp_path}/{number}.sock")
        hubs.append(make(number, settings, authority if request.param == "tls" else None))
    one, two = hubs
    rows = [hub.begin() for hub in hubs]
    for hub in hubs:
        hub.meet(*rows)
    return one, two


def accepts(place: tuple[str, int]) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(place) == 0


def are_linked(one: Hub, two: Hub) -> bool:
    return (one.states(), two.states()) == ([(two.number, "up")], [(one.number, "up")])


def test_hubs_that_read_each_other_s_rows_are_linked_both_ways(pair: tuple[Hub, Hub]) -> None:
    """Over each kind of connection; what is sent arrives, and is acknowledged."""
    one, two = pair
    one.thread.until(lambda: are_linked(one, two))
    for sender, receiver in ((one, two), (two, one)):
        peer = PeerId(receiver.number, 1)
        one.thread.call(lambda sender=sender, peer=peer: sender.links.send(peer, FrameType.ROWS, b"x" * 300_000))
        one.thread.until(lambda receiver=receiver: receiver.receiver.bodies == [b"x" * 300_000])
    one.thread.until(lambda: not any(each.unacknowledged_bytes for hub in pair for each in hub.links.status()))

    assert one.alarm_names() == two.alarm_names() == []
    assert one.thread.call(one.links.status)[0].round_trip_s is not None
    one.thread.until(lambda: not (one.links.is_clock_wrong() or two.links.is_clock_wrong()))
    assert len(one.thread.call(lambda: one.member_links.clocks())) == 1


def test_hub_whose_clock_is_wrong_goes_by_the_time_of_the_others_and_has_the_alarm(make: Callable[..., Hub]) -> None:
    hubs = [make(number, loopback(), ahead_s=3600.0 if number == 3 else 0.0) for number in (1, 2, 3)]
    one, two, three = hubs
    rows = [hub.begin() for hub in hubs]
    for hub in hubs:
        hub.meet(*rows)

    three.thread.until(lambda: three.alarm_names() == [("clock_wrong", "")])

    assert one.alarm_names() == two.alarm_names() == []
    assert three.links.clock_fault.startswith("clock_wrong: 3600 s ahead of the hubs")
    assert abs(three.links.cluster_clock.wall() - SystemClock.wall()) < 60
    assert (one.links.is_clock_wrong(), three.links.is_clock_wrong()) == (False, True)


def test_hubs_that_start_with_the_same_wrong_time_change_nothing_at_one_that_serves(make: Callable[..., Hub]) -> None:
    """They wait, and have the alarm."""
    one, two, three = hubs = [make(number, loopback(), ahead_s=0.0 if number == 1 else 3600.0) for number in (1, 2, 3)]
    rows = [replace(hub.begin(), state=UP if hub is one else JOINING) for hub in hubs]
    for hub in hubs:
        hub.serves = hub is one
        hub.meet(*rows)

    for hub in (two, three):
        hub.thread.until(lambda hub=hub: hub.alarm_names() == [("clock_wrong", "")])

    one.thread.until(lambda: len(one.member_links.clocks()) == 2)
    assert (one.links.is_clock_wrong(), two.links.is_clock_wrong(), three.links.is_clock_wrong()) == (False, True, True)
    assert one.alarm_names() == []
    assert [abs(hub.links.cluster_clock.wall() - SystemClock.wall()) < 60 for hub in hubs] == [True] * 3
    two.links.note_third_clock(SystemClock.wall() + 3600.0, SystemClock().boottime())
    assert two.links.is_clock_wrong()


def test_of_two_hubs_that_start_with_different_times_a_third_clock_says_which_is_right(
    make: Callable[..., Hub],
) -> None:
    one, two = hubs = [make(number, loopback(), ahead_s=ahead_s) for number, ahead_s in ((1, 0.0), (2, 3600.0))]
    rows = [replace(hub.begin(), state=JOINING) for hub in hubs]
    for hub in hubs:
        hub.serves = False
        hub.meet(*rows)
    one.thread.until(lambda: one.links.needs_third_clock and two.links.needs_third_clock)

    boottime = SystemClock().boottime
    for hub in hubs:
        hub.thread.call(lambda hub=hub: hub.links.note_third_clock(SystemClock.wall(), boottime()))

    assert (one.links.is_clock_wrong(), two.links.is_clock_wrong()) == (False, True)


def test_admin_request_is_answered_by_the_linked_hub(make: Callable[..., Hub]) -> None:
    """Composed as a hub does it: what one hub is asked, the other one answers for itself."""
    one, two = make(1, loopback()), make(2, loopback())
    commands = []
    for hub in (one, two):

        async def answer(request: Request, _reply: Reply, number: int = hub.number) -> Json:
            return {"node": number, "tenant": request.tenant}

        made = LinkCommands(hub.links, {Verb.BAN_LIST: answer}, hub.thread.reactor.callLater)
        hub.links.register(TYPES, made)
        commands.append(made)
    rows = [one.begin(), two.begin()]
    for hub in (one, two):
        hub.meet(*rows)
    one.thread.until(lambda: are_linked(one, two))
    found: list[PeerAnswer] = []

    one.thread.call(
        lambda: Deferred.fromCoroutine(
            commands[0].ask_all(Request(Verb.BAN_LIST, "acme", {}), cast("Any", None), 5.0)
        ).addCallback(found.extend)
    )
    one.thread.until(lambda: found)

    assert found == [PeerAnswer(2, {"node": 2, "tenant": "acme"})]


def test_ban_after_failed_logins_of_one_hub_is_in_force_at_the_linked_one(make: Callable[..., Hub]) -> None:
    """Composed as a hub does it: announced where it is made, and to a hub that is linked later; kept where it arrives."""
    one, two = make(1, loopback()), make(2, loopback())
    failures = Failures(FailureSettings(), SystemClock())
    two.links.register(BAN_TYPES, BanReceiver(two.links, failures.ban, failures.in_force))
    one.links.register(BAN_TYPES, BanReceiver(one.links, lambda *_: None, lambda: [("acme", "old", "192.0.2.1", 9.0)]))
    rows = [one.begin(), two.begin()]
    for hub in (one, two):
        hub.meet(*rows)
    one.thread.until(lambda: are_linked(one, two))

    one.thread.call(lambda: BanAnnouncer(one.links).announce_ban("acme", "dev1", "192.0.2.1", 900.0))
    one.thread.until(lambda: failures.banned() == 2)

    assert [(device, source) for _, device, source, _ in failures.in_force()] == [
        ("old", "192.0.2.1"),
        ("dev1", "192.0.2.1"),
    ]


def test_link_that_is_closed_at_one_end_is_forgotten_with_the_row(pair: tuple[Hub, Hub]) -> None:
    """A hub that stops: it is not dialled any more, and the other one has no alarm afterwards."""
    one, two = pair
    one.thread.until(lambda: are_linked(one, two))

    two.close()
    one.thread.until(lambda: one.states() == [(2, "down")])
    one.meet()

    assert one.states() == []
    assert one.alarm_names() == []


def test_hub_hears_of_the_other_one_s_coming_and_end_once(make: Callable[..., Hub]) -> None:
    """It says that it stops, and gone it is when the accounts say so. The end of its own links is no event."""
    one, two = make(1, loopback()), make(2, loopback())
    heard: dict[int, list[MemberEvent]] = {1: [], 2: []}
    for hub in (one, two):
        hub.links.events.watch(heard[hub.number].append)
    rows = [one.begin(), two.begin()]
    for hub in (one, two):
        hub.meet(*rows)
    one.thread.until(lambda: are_linked(one, two))

    two.close()
    one.thread.until(lambda: one.states() == [(2, "down")])
    one.meet()

    assert [(event.name.value, event.node, event.hub, event.reason) for event in heard[1] if event.node == 1] == [
        ("cluster_view", 1, "hub-1", "1 2"),
        ("cluster_view", 1, "hub-1", "1"),
    ]
    assert [(event.name.value, event.hub) for event in heard[1] if event.node == 2] == [
        ("peer_up", "hub-2"),
        ("peer_down", "hub-2"),
    ]
    assert sorted(event.name.value for event in heard[2]) == ["cluster_view", "peer_up"]


def test_hub_whose_clients_listeners_are_closed_is_still_linked_anew(make: Callable[..., Hub]) -> None:
    """It drains: other hubs must reach it as before, and clients again where they did."""
    one, two = make(1, loopback()), make(2, loopback())
    rows = [one.begin(), two.begin()]
    two.thread.call(two.listeners.start)
    place = two.listeners.addresses()["tcp"]
    assert accepts(place)

    two.thread.call(two.listeners.stop_accepting)
    for hub in (one, two):
        hub.meet(*rows)

    one.thread.until(lambda: are_linked(one, two))
    assert not accepts(place)
    two.thread.call(two.listeners.start)
    assert accepts(place)


def test_hub_of_another_installation_is_refused_by_name_on_both_sides(make: Callable[..., Hub]) -> None:
    """Alarm and status of both say why; no frame passes."""
    one, two = make(1, loopback()), make(2, loopback(), installation="b" * 32)
    rows = [one.begin(), two.begin()]
    one.meet(*rows)
    two.meet(*rows)
    one.thread.until(lambda: one.states() == [(2, "refused")])
    one.thread.until(lambda: ("peer_refused", "2") in one.alarm_names())

    assert one.links.trouble(2).startswith(("it refuses this hub: other_installation", "other_installation"))
    assert one.links.up() == two.links.up() == ()


def test_hub_without_a_certificate_for_its_number_is_refused_by_name(
    make: Callable[..., Hub], authority: Authority
) -> None:
    """Whoever dials node 2 and meets node 3's certificate does not talk to it."""
    one = make(1, replace(loopback(), insecure=False), authority)
    three = make(3, replace(loopback(), insecure=False), authority)
    one.begin()
    row = three.begin()
    one.meet(replace(row, number=2))
    one.thread.until(lambda: ("peer_refused", "2") in one.alarm_names())

    assert one.links.trouble(2) == "certificate_of_another_node: expected that of node 2, got that of node 3"


@pytest.mark.parametrize("is_tls_dialled", [True, False], ids=["plain dials TLS", "TLS dials plain"])
def test_hubs_of_which_one_has_no_tls_do_not_link(
    make: Callable[..., Hub], authority: Authority, is_tls_dialled: bool
) -> None:
    """Neither sends anything over a connection that the other one protects, and both go on with others."""

    def hub(number: int, *, is_secure: bool) -> Hub:
        return make(number, replace(loopback(), insecure=not is_secure), authority if is_secure else None)

    one = hub(1, is_secure=not is_tls_dialled)
    two = hub(2, is_secure=is_tls_dialled)
    three = hub(3, is_secure=not is_tls_dialled)
    rows = [hub.begin() for hub in (one, two, three)]
    one.meet(*rows)
    three.meet(rows[0], rows[2])
    one.thread.until(lambda: dict(one.states()).get(3) == "up")
    one.thread.until(lambda: one.links.trouble(2))

    assert dict(one.states())[2] != "up"
    assert one.links.trouble(2).startswith("closed" if is_tls_dialled else ("no_tls", "closed"))


def test_hub_that_nobody_reaches_has_an_alarm_until_it_is_linked(
    make: Callable[..., Hub], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It lives by its row: a firewall, or an address that is not its own."""
    monkeypatch.setattr("iothub.hub.cluster.link_alarms.UNLINKED_S", 0.0)
    one, two = make(1, loopback()), make(2, loopback())
    rows = [one.begin(), two.begin()]
    lost = replace(rows[1], address=f"127.0.0.1:{free_port()}")
    one.meet(lost)
    one.thread.until(lambda: one.links.trouble(2) == "Connection refused")
    one.meet(lost)
    assert one.alarm_names() == [("peer_silent", "2")]

    one.meet(*rows)
    two.meet(*rows)
    one.thread.until(lambda: are_linked(one, two))

    assert one.alarm_names() == []


def test_hub_that_serves_clients_is_waited_for_and_one_that_joins_is_not(make: Callable[..., Hub]) -> None:
    """Linked or not: what is wrong with the link is no reason to acknowledge what that hub does not know."""
    awaited: list[list[PeerId]] = []
    one, two = make(1, loopback()), make(2, loopback())
    one.links.watch_members(lambda peers: awaited.append(list(peers)))
    rows = [one.begin(), two.begin()]
    lost = replace(rows[1], address=f"127.0.0.1:{free_port()}")

    one.meet(lost)
    one.meet(replace(lost, state="joining"))

    assert awaited == [[PeerId(2, 1)], []]


@pytest.mark.parametrize(("gone", "other"), [(1, 2), (2, 1)])
def test_hub_that_is_expelled_hears_that_it_is_gone(make: Callable[..., Hub], gone: int, other: int) -> None:
    """Whichever of the two dials; the other one keeps what waits for it until it goes on without it."""
    hubs = {number: make(number, loopback()) for number in (1, 2)}
    rows = [hubs[number].begin() for number in (1, 2)]
    for hub in hubs.values():
        hub.meet(*rows)
    expelled, member = hubs[gone], hubs[other]
    member.thread.until(lambda: are_linked(hubs[1], hubs[2]))

    member.thread.call(lambda: member.member_links.expel(PeerId(gone, 1)))
    member.thread.until(lambda: expelled.told_gone)

    assert member.receiver.gone == []
    member.thread.call(lambda: member.member_links.drop(PeerId(gone, 1)))
    assert (member.states(), member.receiver.gone) == ([], [PeerId(gone, 1)])


def test_hub_that_is_muted_hears_nothing_until_it_is_answered_again(make: Callable[..., Hub]) -> None:
    """Perhaps it is being declared gone: it gets no evidence, and no word that would make it begin again."""
    one, two = make(1, loopback()), make(2, loopback())
    rows = [one.begin(), two.begin()]
    for hub in (one, two):
        hub.meet(*rows)
    one.thread.until(lambda: are_linked(one, two))

    two.thread.call(lambda: two.member_links.mute(PeerId(1, 1)))
    ticks = one.ticks
    one.thread.until(lambda: one.ticks > ticks + 5)
    assert (two.states(), one.told_gone) == ([(1, "down")], [])

    two.thread.call(lambda: two.member_links.unmute(PeerId(1, 1)))
    one.thread.until(lambda: are_linked(one, two))


def test_hub_that_is_gone_has_an_alarm_that_says_why(make: Callable[..., Hub]) -> None:
    """Until it begins again, or leaves in order."""
    one = make(1, loopback())
    one.begin()
    row = HubRow(2, 1, "hub-2", 0, 1, address="unix:/nowhere", gone_by=3, gone_why="silent")

    one.links.judge_gone([row])
    assert [(alarm.name.word, alarm.subject) for alarm in one.alarms.active()] == [("peer_gone", "2")]
    one.links.judge_gone([replace(row, gone_why="cut_off")])
    (alarm,) = one.alarms.active()
    assert (alarm.name.word, alarm.detail) == (
        "peer_expelled",
        "node 3 declared it gone: both live, and for 5 s no link between the two worked: a cut network, or one of them stood still",
    )
    one.links.judge_gone([replace(row, gone_by=2, gone_why="left")])

    assert one.alarm_names() == []


def test_certificates_are_read_again_for_links_that_begin_afterwards(
    make: Callable[..., Hub], authority: Authority, tmp_path: Path
) -> None:
    """A reload: the link that is there stays."""
    own = Authority(tmp_path, authority.pem)
    one, two = (make(number, replace(loopback(), insecure=False), own) for number in (1, 2))
    rows = [one.begin(), two.begin()]
    for hub in (one, two):
        hub.meet(*rows)
    one.thread.until(lambda: are_linked(one, two))
    own.files(1)  # issued anew
    before = one.links._acceptor._server

    one.thread.call(one.links.prepare())

    assert are_linked(one, two)
    assert one.links._acceptor._server is not before


# --- what it costs a hub that is alone


def open_now(thread: ReactorThread) -> tuple[Sequence[str], int, int]:
    """Descriptors, threads and timers of this process."""
    descriptors = os.listdir("/proc/self/fd")
    return descriptors, threading.active_count(), len(thread.reactor.getDelayedCalls())


def test_hub_that_is_alone_has_no_timer_and_no_thread_for_links(make: Callable[..., Hub]) -> None:
    """With `cluster.listen`: one socket that listens. What comes with the first hub goes with the last."""
    one, two = make(1, loopback()), make(2, loopback())
    thread = one.thread
    thread.call(one.listeners.begin_ticks)
    thread.call(two.listeners.begin_ticks)
    before = thread.call(lambda: open_now(thread))
    rows = [one.begin()]
    one.meet(*rows)
    alone = thread.call(lambda: open_now(thread))
    assert len(alone[0]) == len(before[0]) + 1
    assert alone[1:] == before[1:]

    rows.append(two.begin())
    for hub in (one, two):
        hub.meet(*rows)
    thread.until(lambda: are_linked(one, two))
    one.meet()
    thread.call(two.links.close)
    thread.until(lambda: one.links._timer is None and not one.links._acceptor.connections)

    assert one.links.status() == []
