"""One connection per Client Identifier, at whichever of several hubs. Whole control planes in one process, links that the test moves."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from iothub.engine.router import Subscription
from iothub.engine.state import Place
from iothub.hub.cluster.session_directory import HOLD_S
from iothub.peers.directory_frames import Announced
from iothub.peers.frames import FrameType
from iothub.peers.ports import PeerId
from iothub.peers.view import View
from iothub_services.sessions.endings import RETRY_S
from iothub_services.sessions.firing import WAIT_S
from iothub_services.sessions.port import Purpose, SingleHub
from iothub_tenants.broker.wills import Wills
from tests.support.clients import property_names as names
from tests.support.clients.packets import CONNACK, DISCONNECT
from tests.support.in_process.clustered_harness import Cluster, ClusteredHub
from tests.support.in_process.control_harness import now

ONE, TWO = PeerId(1, 1), PeerId(2, 1)
OWN, THEIRS = (
    next(name for name in (f"c{number}" for number in range(99)) if View(0, [ONE, TWO]).owner((7, name)) == owner)
    for owner in (ONE, TWO)
)
TAKEN_OVER, UNAVAILABLE = 0x8E, 0x88


class Others(SingleHub):
    """Hubs that share the session log. `asked`: up to how many seconds ago it had to be read; `on_read`: what it says when all is read."""

    is_alone = False

    def __init__(self) -> None:
        self.asked: list[float] = []
        self.on_read: Callable[[], None] = lambda: None

    async def catch_up(self, ago_s: float = 0.0) -> None:
        self.asked.append(ago_s)
        if not ago_s:
            self.on_read()


def entries(cluster: Cluster) -> int:
    """How many entries the directory has, at all hubs."""
    directories = [hub.directory._core for hub in cluster.hubs]
    return sum(0 if each is None else len(each.owned) for each in directories)


def pass_time(cluster: Cluster, seconds: float) -> None:
    for hub in cluster.hubs:
        hub.reactor.advance(seconds)
    cluster.settle()


@pytest.mark.parametrize("client_id", [OWN, THEIRS])
@pytest.mark.parametrize("version", [4, 5])
def test_the_older_of_two_clients_is_closed_whichever_hubs_they_use(
    make_cluster: Callable[..., Cluster], client_id: str, version: int
) -> None:
    """[MQTT-3.1.4-3]: both ways, whichever of the hubs owns the Client Identifier."""
    cluster = make_cluster()
    first = cluster.join(0, client_id, version)

    second = cluster.join(1, client_id, version)
    first.refused(TAKEN_OVER)
    cluster.join(0, client_id, version)
    second.refused(TAKEN_OVER)

    assert entries(cluster) == 1


def test_the_will_of_the_older_client_is_sent(make_cluster: Callable[..., Cluster]) -> None:
    """[MQTT-3.1.2-8]: its connection was not closed by a DISCONNECT with Reason Code 0x00."""
    cluster = make_cluster()
    watcher = cluster.join(1, "watcher")
    cluster.subscribe(watcher, ("will", 1))
    first = cluster.join(0, THEIRS, will=("will", b"gone", 1, False))

    cluster.join(1, THEIRS)

    first.refused(TAKEN_OVER)
    assert cluster.payloads(watcher) == [b"gone"]


@pytest.mark.parametrize("hub", [0, 1])
def test_no_client_waits_long_until_its_delayed_will_is_stored(
    make_cluster: Callable[..., Cluster], monkeypatch: pytest.MonkeyPatch, hub: int
) -> None:
    """It may wait long for a rate, or for the store."""
    cluster = make_cluster()
    options: dict[str, Any] = {"will": ("will", b"gone", 1, False), "will_props": [(names.WILL_DELAY, 5)]}
    first = cluster.join(0, THEIRS, props=[(names.SESSION_EXPIRY, 3600)], **options)
    first.drop()
    cluster.settle()
    fired: list[object] = []
    monkeypatch.setattr(Wills, "fire", lambda *arguments: fired.append(arguments))

    for each in cluster.hubs:
        each.harness.pass_time(6)
    cluster.settle()
    client = cluster.ask(hub, THEIRS, clean=False)
    for each in cluster.hubs:
        each.harness.pass_time(WAIT_S)
    cluster.settle()

    assert client.expect(CONNACK).code == 0
    assert len(fired) == 1
    assert sum(each.harness.sessions.wills_overtaken for each in cluster.hubs) == 1


def test_a_client_is_given_up_although_its_end_meets_a_defect(
    make_cluster: Callable[..., Cluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The key comes free, and the defect is counted."""
    cluster = make_cluster()
    cluster.join(0, THEIRS)

    async def fail(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(cluster.hubs[0].harness.sessions, "give_way", fail)
    cluster.join(1, THEIRS)

    assert cluster.hubs[0].directory.given_up == {"logged": 0, "unlogged": 0, "defect": 1}
    assert entries(cluster) == 1


def test_a_connect_waits_until_every_hub_knows_the_subscriptions_of_the_session(
    make_cluster: Callable[..., Cluster],
) -> None:
    """They have changed at the hub that had the client: this one could not tell by which of them others have sent a message."""
    cluster = make_cluster()
    first = cluster.join(0, THEIRS, props=[(0x11, 3600)])
    cluster.subscribe(first, ("a", 1))
    found = cluster.hubs[0].directory._find((7, THEIRS))
    assert found is not None
    session = found[1]
    [before] = session.subscriptions.values()
    change = cluster.hubs[0].routes.change_options(session, [(before, Subscription(session, b"a", None, 0))])
    assert change is not None

    second = cluster.ask(1, THEIRS, props=[(0x11, 3600)])
    first.refused(TAKEN_OVER)
    cluster.settle()
    waiting = [cluster.hubs[1].directory._core.waiting]
    change.end()
    cluster.settle()
    waiting.append(cluster.hubs[1].directory._core.waiting)

    assert waiting == [1, 0]

    assert second.expect(CONNACK).code == 0


@pytest.mark.parametrize("client_id", [OWN, THEIRS])
def test_a_connect_waits_until_the_older_client_is_closed_and_is_refused_after_a_while(
    make_cluster: Callable[..., Cluster], client_id: str
) -> None:
    """None is better than two."""
    cluster = make_cluster()
    first, other = cluster.join(0, client_id), cluster.join(1, "other")
    cluster.net.cut = {(ONE, TWO), (TWO, ONE)}

    second = cluster.ask(1, client_id)
    pass_time(cluster, HOLD_S - 0.1)
    second.expect_nothing(0.0)
    pass_time(cluster, 0.2)

    assert second.expect(CONNACK).code == UNAVAILABLE
    for client in (first, other):
        client.nothing()
    cluster.net.cut = set()
    cluster.settle()
    cluster.join(1, client_id)
    first.expect(DISCONNECT)


def test_a_client_that_leaves_leaves_no_entry(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster()
    clients = [cluster.join(hub, client_id) for hub in (0, 1) for client_id in (f"a{hub}", f"b{hub}")]
    assert entries(cluster) == 4

    for client in clients:
        client.drop()
    cluster.settle()

    assert entries(cluster) == 0


def test_a_connect_that_is_refused_leaves_no_entry(make_cluster: Callable[..., Cluster]) -> None:
    """Its session was not opened: the tenant's connections are used up."""
    cluster = make_cluster()
    for hub in cluster.hubs:
        hub.harness.limit("connections=1")
    cluster.join(0, OWN)

    assert cluster.ask(0, THEIRS).expect(CONNACK).code == 0x97
    cluster.settle()

    assert entries(cluster) == 1


def test_a_hub_that_is_alone_sends_nothing(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster(1)

    first = cluster.join(0, OWN)
    cluster.join(0, OWN)

    first.refused(TAKEN_OVER)
    [hub] = cluster.hubs
    assert (hub.directory._core, hub.links.sent) == (None, [])


def test_clients_of_a_hub_that_was_alone_are_closed_for_those_of_a_hub_that_comes(
    make_cluster: Callable[..., Cluster],
) -> None:
    cluster = make_cluster(1)
    first = cluster.join(0, OWN)
    cluster.hubs.append(cluster.net.add(TWO))
    cluster.look()
    cluster.settle()

    cluster.join(1, OWN)

    first.refused(TAKEN_OVER)


def test_a_client_waits_at_a_hub_that_has_just_come_for_its_will_at_the_other_one(
    make_cluster: Callable[..., Cluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hub that was alone is sending it: it has the Client Identifier until the Will is stored, and gives it back then."""
    cluster = make_cluster(1)
    stored: list[Callable[[], None]] = []
    monkeypatch.setattr(Wills, "fire", lambda *arguments: stored.append(arguments[-1]))
    cluster.join(0, OWN, props=[(names.SESSION_EXPIRY, 3600)], will=("will", b"gone", 1, False)).drop()
    cluster.settle()
    cluster.hubs.append(cluster.net.add(TWO))
    cluster.look()
    cluster.settle()
    assert entries(cluster) == 1

    client = cluster.ask(1, OWN, clean=False)
    assert OWN not in cluster.hubs[1].harness.acme.plane.sessions
    stored.pop()()
    cluster.settle()

    assert client.expect(CONNACK).code == 0


def test_a_client_of_a_hub_that_is_gone_comes_to_another_one(make_cluster: Callable[..., Cluster]) -> None:
    """Whether the hub owned its Client Identifier or only had it."""
    cluster = make_cluster()
    gone = cluster.hubs[1]
    cluster.join(1, OWN)
    cluster.join(1, THEIRS)
    cluster.net.kill(gone)
    cluster.look()

    cluster.join(0, OWN)
    cluster.join(0, THEIRS)

    assert len(cluster.hubs[0].directory._made().owned) == 0  # a hub that is alone keeps none


# --- persistent sessions


def kept(cluster: Cluster, hub: int, client_id: str) -> Any:
    return cluster.join(hub, client_id, 4, clean=False)


def test_a_session_is_given_to_another_hub_once_its_end_can_be_read_in_the_log(
    make_cluster: Callable[..., Cluster],
) -> None:
    cluster = make_cluster()
    journal = cluster.hubs[0].harness.journal
    first = kept(cluster, 0, THEIRS)
    journal.is_held = True

    second = cluster.ask(1, THEIRS, 4)
    first.refused()
    assert "session.disconnected" in journal.words()
    second.expect_nothing(0.0)
    journal.release()
    cluster.settle()

    assert second.expect(CONNACK).code == 0


def test_a_connect_reads_the_log_up_to_what_another_hub_may_have_written(
    make_cluster: Callable[..., Cluster],
) -> None:
    """Not at all for a client that comes back to its hub."""
    others = Others()
    cluster = make_cluster(session_cluster=others)
    kept(cluster, 0, THEIRS).drop()
    cluster.settle()
    cluster.clock.now += 2.0
    others.asked.clear()

    kept(cluster, 1, THEIRS)
    kept(cluster, 1, THEIRS)

    assert others.asked == [2.0, math.inf]


def test_nobody_writes_about_a_transient_session_that_another_one_would_have_to_read(
    make_cluster: Callable[..., Cluster],
) -> None:
    """What was written by others is as long ago as the hubs know each other."""
    others = Others()
    cluster = make_cluster(session_cluster=others)
    cluster.clock.now += 5.0
    cluster.join(0, OWN).drop()
    first = cluster.join(0, THEIRS)
    others.asked.clear()

    cluster.join(1, OWN)
    cluster.join(1, THEIRS)

    first.refused(TAKEN_OVER)
    assert others.asked == [5.0, 5.0]


def test_the_end_of_a_session_is_something_that_another_hub_has_to_read(make_cluster: Callable[..., Cluster]) -> None:
    others = Others()
    cluster = make_cluster(session_cluster=others)
    hub = cluster.hubs[0].harness
    cluster.join(0, THEIRS, props=[(0x11, 10)]).drop()
    cluster.settle()
    cluster.clock.now += 9.0
    hub.pass_time(11.0)
    cluster.settle()
    assert THEIRS not in hub.acme.plane.sessions
    cluster.clock.now += 2.0
    others.asked.clear()

    cluster.join(1, THEIRS)

    assert others.asked == [2.0]


def test_a_connect_reads_all_of_the_log_when_another_hub_may_be_sending_the_will(
    make_cluster: Callable[..., Cluster],
) -> None:
    """It holds no Client Identifier for that."""
    others = Others()
    cluster = make_cluster(session_cluster=others)
    cluster.clock.now += 5.0
    client = cluster.join(0, OWN, props=[(0x11, 100)], will=("will", b"late", 1, False), will_props=[(0x18, 50)])
    client.drop()
    cluster.settle()
    hub = cluster.hubs[0].harness
    hub.session(OWN).control.place = Place(2, 1)
    cluster.clock.now += 50.0
    others.asked.clear()

    cluster.ask(0, OWN, props=[(0x11, 100)])

    assert others.asked[0] == 0.0


def test_a_session_does_not_expire_while_its_client_is_connected_to_another_hub(
    make_cluster: Callable[..., Cluster],
) -> None:
    """The log of these hubs is not shared: only the directory knows. The look is repeated."""
    cluster = make_cluster()
    hub: ClusteredHub = cluster.hubs[0]
    cluster.join(0, THEIRS, props=[(0x11, 10)]).drop()
    cluster.settle()
    elsewhere = cluster.join(1, THEIRS)

    hub.harness.pass_time(11.0)
    cluster.settle()
    elsewhere.nothing()
    assert THEIRS in hub.harness.acme.plane.sessions

    elsewhere.drop()
    cluster.settle()
    hub.harness.pass_time(RETRY_S + 1.0)
    cluster.settle()
    assert THEIRS not in hub.harness.acme.plane.sessions


def test_an_operator_ends_a_session_without_asking_other_hubs(make_cluster: Callable[..., Cluster]) -> None:
    """The log and the queue's epoch say so to them."""
    cluster = make_cluster()
    cluster.net.cut = {(ONE, TWO), (TWO, ONE)}

    async def hold(purpose: Purpose) -> float:
        async with cluster.hubs[0].directory.holding(7, THEIRS, purpose) as written_s:
            return written_s

    assert now(hold(Purpose.DISCARD)) == 0.0


def test_a_session_that_an_operator_has_ended_at_another_hub_is_not_resumed(
    make_cluster: Callable[..., Cluster],
) -> None:
    """Nobody was asked for that, so no answer of the directory tells of it: the queue's epoch does."""
    others = Others()
    cluster = make_cluster(session_cluster=others)
    hub = cluster.hubs[0].harness
    kept(cluster, 0, OWN).drop()
    cluster.settle()
    session = hub.session(OWN)
    cluster.clock.now += 2.0
    hub.store.claim(session.queue_id)
    others.on_read = lambda: hub.sessions.forget(hub.acme, session)

    assert not kept(cluster, 0, OWN).connack.session_present
    assert hub.session(OWN).queue_id != session.queue_id


def test_a_hub_announces_the_version_of_its_last_look_at_the_accounts(make_cluster: Callable[..., Cluster]) -> None:
    """Hubs that have read different ones wait for each other, although the same hubs are in both."""
    hub = make_cluster().hubs[0]
    hub.links.sent.clear()
    hub.view_version = 7

    hub.directory.members([TWO])

    views = [Announced.decode(body).view for _, frame_type, body in hub.links.sent if frame_type == FrameType.VIEW]
    assert views == [View(7, [ONE, TWO])]
