"""Alarms of links: who refuses whom, who lives and is not reached; and that strangers raise none."""

from __future__ import annotations

from dataclasses import replace

import pytest

from iothub.base.reasons import LinkClose, PeerRefusal, WireRefusal
from iothub.hub.cluster.link_alarms import UNLINKED_S, LinkAlarms
from iothub.peers.cluster_clock import ClusterClock, HubClock
from iothub.peers.ports import LinkStatus, PeerAddress, PeerId
from iothub.testing.clock import ManualClock
from iothub_services.metrics.alarms import Alarms
from iothub_tenants.accounts.hubs import EVICTED, SILENT, HubRow

TWO = PeerId(2, 1)
ADDRESS = PeerAddress(2, 1, "two", "hub-2:1")
DOWN = LinkStatus(TWO, "two", "hub-2:1", "down", UNLINKED_S, 0, None, None, 0, 0, 0)


class Observed:
    """Link alarms, and what they raise."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.alarms = Alarms(self.clock)
        self.links = LinkAlarms(self.alarms, self.clock)

    def raised(self) -> list[tuple[str, str, str]]:
        return [(alarm.name.word, alarm.subject, alarm.detail) for alarm in self.alarms.active()]


@pytest.fixture
def observed() -> Observed:
    return Observed()


def test_hub_that_refuses_or_is_refused_has_an_alarm_until_it_is_linked(observed: Observed) -> None:
    observed.links.refused(2, "hub-2:1", PeerRefusal.VERSION, "it speaks 9", by_peer=False)
    assert observed.raised() == [("peer_refused", "2", "incompatible_version: it speaks 9")]
    observed.links.link_up(TWO, "two", "hub-2:1")
    assert (observed.raised(), observed.links.trouble(2)) == ([], "")

    observed.links.refused(2, "hub-2:1", PeerRefusal.INSTALLATION, "", by_peer=True)

    assert observed.raised() == [("peer_refused", "2", "it refuses this hub: other_installation")]


def test_refused_certificate_is_an_alarm_and_an_unreachable_hub_is_not_yet(observed: Observed) -> None:
    """A hub that restarts refuses connections for a moment."""
    for text in ("Connection refused", "timeout: no connection within 2 s", "closed: by the other hub"):
        observed.links.not_connected(ADDRESS, text)
        assert (observed.raised(), observed.links.trouble(2)) == ([], text)

    observed.links.not_connected(ADDRESS, "certificate_expired: certificate has expired")

    assert observed.raised() == [("peer_refused", "2", "certificate_expired: certificate has expired")]


@pytest.mark.parametrize(
    ("others", "fault"),
    [
        (
            (0.0, 0.0),
            "clock_wrong: 60 s ahead of the hubs by whose time this one goes: have NTP set this machine's clock",
        ),
        (
            (0.0,),
            "clock_wrong: 60 s ahead of the other hubs, and no majority says which is right: have NTP set the clocks of all machines",
        ),
    ],
)
def test_clock_that_stays_wrong_has_an_alarm_until_it_is_right(
    observed: Observed, others: tuple[float, ...], fault: str
) -> None:
    """Not one that is set at all machines within a moment."""
    clock, at_boot = (
        ClusterClock(observed.clock, observed.clock.boottime),
        observed.clock.wall() - observed.clock.boottime(),
    )
    observed.clock.jump_wall(60.0)
    for raised in (0, 0, 1):
        clock.judge([HubClock(at_boot + other, at_boot) for other in others], [], serves=True)
        observed.links.judge_clock(clock)
        assert len(observed.raised()) == raised
    assert observed.raised() == [("clock_wrong", "", fault)]
    assert observed.links.clock_fault == fault

    observed.clock.jump_wall(-60.0)
    clock.judge([HubClock(at_boot + other, at_boot) for other in others], [], serves=True)
    observed.links.judge_clock(clock)

    assert (observed.raised(), observed.links.clock_fault) == ([], "")


def test_hub_that_lives_and_is_not_reached_has_an_alarm_with_the_cause(observed: Observed) -> None:
    observed.links.not_connected(ADDRESS, "Connection refused")
    observed.links.judge([replace(DOWN, since_s=UNLINKED_S - 0.1)])
    assert observed.raised() == []

    observed.links.judge([DOWN])
    assert observed.raised() == [("peer_silent", "2", "Connection refused")]
    observed.links.judge([])  # its row says that it has stopped

    assert (observed.raised(), observed.links.trouble(2)) == ([], "")


def test_silent_link_is_an_alarm_at_once_and_a_lost_one_is_not(observed: Observed) -> None:
    observed.links.link_down(TWO, LinkClose.LOST, "network")
    assert observed.raised() == []

    observed.links.link_down(TWO, LinkClose.SILENT, "")
    assert observed.raised() == [("peer_silent", "2", "it has not answered a ping for 2 s")]
    observed.links.peer_gone(TWO, 0, 0)

    assert observed.raised() == []


@pytest.mark.parametrize("by_peer", [True, False])
def test_hub_that_hears_that_it_is_gone_raises_no_alarm_of_a_refusal(observed: Observed, by_peer: bool) -> None:
    """It begins again; the alarm of who was declared gone is of its row."""
    observed.links.refused(2, "192.0.2.2:7883", PeerRefusal.GONE, "incarnation 7 is gone", by_peer=by_peer)

    assert observed.raised() == []


def test_stranger_has_a_line_a_minute_and_no_alarm(observed: Observed) -> None:
    """Any program that finds the port can be refused."""
    for port in range(100):
        observed.links.not_accepted(f"192.0.2.1:{port}", WireRefusal.NO_TLS, "HTTP_REQUEST")
        observed.links.refused(None, f"192.0.2.1:{port}", PeerRefusal.MALFORMED, "x", by_peer=False)
    observed.links.not_accepted("192.0.2.1:7", WireRefusal.CERTIFICATE_MISSING, "none")
    assert observed.links._is_news("192.0.2.1", WireRefusal.NO_TLS) is False
    observed.clock.advance(61)

    assert observed.links._is_news("192.0.2.1", WireRefusal.NO_TLS) is True
    assert observed.raised() == []


def test_alarm_of_a_hub_that_is_gone_ends_when_an_administrator_knows_it(observed: Observed) -> None:
    """It may never come back."""
    observed.links.judge_gone([HubRow(2, 1, "two", 0, 1, gone_by=1, gone_why=SILENT)])
    assert [name for name, _, _ in observed.raised()] == ["peer_gone"]

    observed.links.judge_gone([HubRow(2, 1, "two", 0, 1, gone_by=1, gone_why=EVICTED)])

    assert observed.raised() == []


def test_hub_whose_own_certificate_is_refused_hears_it_from_whoever_connects(observed: Observed) -> None:
    """The other hubs connect to it, and end the handshake before they say who they are."""
    observed.links.not_accepted("192.0.2.1:7", WireRefusal.CERTIFICATE_REFUSED, "tlsv1 alert unknown ca")

    assert (observed.raised(), observed.links.trouble(2)) == ([], "")  # a stranger's, as far as is known
    observed.links.judge([DOWN])
    cause = "certificate_refused: a connection from 192.0.2.1:7 ended: tlsv1 alert unknown ca"
    assert observed.raised() == [("peer_silent", "2", cause)]
    assert (observed.links.trouble(2), observed.links.is_refused(2)) == (cause, False)
    observed.links.link_up(TWO, "two", "hub-2:1")
    assert (observed.raised(), observed.links.trouble(3)) == ([], "")


def test_who_refuses_before_a_name_is_said_is_known(observed: Observed) -> None:
    observed.links.not_connected(ADDRESS, "certificate_refused: unknown ca")
    assert observed.links.is_refused(2)

    observed.links.not_connected(ADDRESS, "timeout: no connection within 2 s")

    assert not observed.links.is_refused(2)
