"""Changes of other hubs, each once: for plug-ins, `$SYS`, log and metrics."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from iothub.base.reasons import LinkClose, PeerRefusal
from iothub.hub.cluster.member_events import HubStates, MemberEvent, MemberEventName, MemberEvents
from iothub.hub.phase import Phase
from iothub.peers.ports import PeerId
from iothub_tenants.accounts.hubs import CUT_OFF, EVICTED, SILENT, HubRow

UP, UNREACHABLE, DOWN = MemberEventName.UP, MemberEventName.UNREACHABLE, MemberEventName.DOWN
PEER, NEXT_RUN = PeerId(2, 7), PeerId(2, 8)


class Alarms:
    """Observes as well."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *_given, **_named: self.seen.append(name)


class Watched:
    """Events of a hub's links, and who watches them."""

    def __init__(self) -> None:
        self.alarms = Alarms()
        self.events = MemberEvents(cast("Any", self.alarms))
        self.heard: list[MemberEvent] = []
        self.events.watch(self.heard.append)

    @property
    def names(self) -> list[str]:
        return [event.name.value for event in self.heard]


@pytest.fixture
def watched() -> Watched:
    return Watched()


def test_hub_comes_and_is_lost_and_is_gone(watched: Watched) -> None:
    """What is not reached may live; who is gone does not come back, and a next run of it is a hub that comes."""
    events = watched.events
    with capture_logs() as lines:
        events.link_up(PEER, "two", "two:1")
        events.link_down(PEER, LinkClose.SILENT, "")
        events.peer_gone(PEER, 0, 0)
        events.link_up(NEXT_RUN, "two", "two:1")

    assert watched.heard == [
        MemberEvent(UP, 2, "two"),
        MemberEvent(UNREACHABLE, 2, "two", "peer_silent"),
        MemberEvent(DOWN, 2, "two"),
        MemberEvent(UP, 2, "two"),
    ]
    assert [line["change"] for line in lines] == watched.names
    assert +events.counts == {"peer_up": 2, "peer_unreachable": 1, "peer_down": 1}


@pytest.mark.parametrize("reason", [LinkClose.RELINKED, LinkClose.CLOSED, LinkClose.LEFT, LinkClose.PEER_GONE])
def test_end_of_a_link_that_says_nothing_of_the_hub_is_no_event(watched: Watched, reason: LinkClose) -> None:
    """It came again on another connection, this hub stops, or `peer_down` follows."""
    watched.events.link_up(PEER, "two", "two:1")
    watched.events.link_down(PEER, reason, "")
    watched.events.link_up(PEER, "two", "two:1")

    assert watched.names == ["peer_up"]


def test_hub_that_is_refused_or_was_never_linked_is_no_event(watched: Watched) -> None:
    watched.events.refused(2, "two:1", PeerRefusal.VERSION, "", by_peer=False)
    watched.events.link_down(PEER, LinkClose.LOST, "")
    watched.events.peer_gone(PEER, 0, 0)

    assert watched.heard == []
    assert set(watched.events.counts.values()) == {0}


def test_alarms_observe_all_the_same(watched: Watched) -> None:
    watched.events.link_up(PEER, "two", "two:1")
    watched.events.refused(2, "two:1", PeerRefusal.VERSION, "", by_peer=False)
    watched.events.link_down(PEER, LinkClose.RELINKED, "")
    watched.events.peer_gone(PEER, 0, 0)

    assert watched.alarms.seen == ["link_up", "refused", "link_down", "peer_gone"]


def gone(why: str, number: int = 2, incarnation: int = 7) -> HubRow:
    return HubRow(number, incarnation, "two", 0, 1, gone_by=1, gone_why=why)


@pytest.mark.parametrize("why", [CUT_OFF, EVICTED])
def test_hub_that_may_live_and_is_declared_gone_is_expelled_once(watched: Watched, why: str) -> None:
    """`peer_down` follows, when this hub goes on without it."""
    watched.events.link_up(PEER, "two", "two:1")
    watched.events.judge_gone([HubRow(2, 7, "two", 0, 1)])

    for _ in range(2):
        watched.events.judge_gone([gone(why)])
    watched.events.peer_gone(PEER, 0, 0)

    assert watched.heard[1:] == [
        MemberEvent(MemberEventName.EXPELLED, 2, "two", why),
        MemberEvent(DOWN, 2, "two"),
    ]


def test_hub_that_was_gone_before_is_not_expelled(watched: Watched) -> None:
    """This hub has just started, or an administrator notes that a dead one is known to be gone."""
    watched.events.judge_gone([gone(CUT_OFF), gone(SILENT, 3)])

    watched.events.judge_gone([gone(CUT_OFF), gone(EVICTED, 3)])

    assert watched.heard == []


def test_change_of_who_serves_clients_is_an_event_of_the_own_hub(watched: Watched) -> None:
    for others in ([], [3, 2], [2, 3], [2]):
        watched.events.judge_view(1, "one", others)

    assert [(event.node, event.hub, event.reason) for event in watched.heard] == [
        (1, "one", "1"),
        (1, "one", "1 2 3"),
        (1, "one", "1 2"),
    ]
    assert +watched.events.counts == {"cluster_view": 3}


def test_first_of_the_hubs_is_known(watched: Watched) -> None:
    """Alone, or before it has looked, a hub is it."""
    found = [watched.events.is_first(2)]
    for others in ([], [3, 10], [1, 3]):
        watched.events.judge_view(2, "two", others)
        found.append(watched.events.is_first(2))

    assert found == [True, True, True, False]


def test_states_are_those_that_this_hub_sees() -> None:
    """Each name has the hub that says it: two hubs may see a third one differently."""
    phase = Phase()
    statuses: list[Any] = [
        SimpleNamespace(peer=PEER, state="up"),
        SimpleNamespace(peer=PeerId(3, 1), state="down"),
        SimpleNamespace(peer=PeerId(4, 1), state="refused"),
    ]
    states = HubStates(1, phase, lambda: statuses, lambda: "1 2")

    assert states.all() == {
        "1/state": "up",
        "1/view": "1 2",
        "1/peers/2": "up",
        "1/peers/3": "unreachable",
        "1/peers/4": "unreachable",
    }
    assert states.after(MemberEvent(DOWN, 2, "two")) == {"1/peers/2": "down"}
    assert states.after(MemberEvent(MemberEventName.VIEW, 1, "one", "1 3")) == {"1/view": "1 3"}
    phase.begin_drain()
    assert states.own() == {"1/state": "draining"}
