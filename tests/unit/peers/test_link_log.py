"""What a log says of links, and how often."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from iothub.base.reasons import LinkClose, PeerRefusal
from iothub.peers.link_log import LinkLog
from iothub.peers.ports import PeerId
from iothub.testing.clock import ManualClock


def test_refusal_is_logged_once_a_minute_for_each_peer_and_reason() -> None:
    clock = ManualClock()
    seen = LinkLog(clock)

    with capture_logs() as lines:
        for _ in range(60):
            seen.refused(3, "10.0.0.3:7883", PeerRefusal.INSTALLATION, "of another", by_peer=False)
            clock.advance(2)
        seen.refused(3, "10.0.0.3:7883", PeerRefusal.VERSION, "too new", by_peer=False)
        seen.refused(4, "10.0.0.4:7883", PeerRefusal.VERSION, "too new", by_peer=True)

    assert [(line["event"], line["peer"], line["reason"]) for line in lines] == [
        ("this hub refuses another one", 3, "other_installation"),
        ("this hub refuses another one", 3, "other_installation"),
        ("this hub refuses another one", 3, "incompatible_version"),
        ("another hub refuses this one", 4, "incompatible_version"),
    ]


def test_many_strangers_are_forgotten_again() -> None:
    seen = LinkLog(ManualClock())

    for node in range(1000):
        seen.refused(node, "x", PeerRefusal.MALFORMED, "", by_peer=False)

    assert len(seen._refused) <= 256


@pytest.mark.parametrize("frames", [0, 12])
def test_peer_that_is_gone_is_logged_with_what_was_dropped(frames: int) -> None:
    with capture_logs() as lines:
        LinkLog(ManualClock()).peer_gone(PeerId(2, 7), frames, 99)

    assert [(line["reason"], line["frames"], line["incarnation"]) for line in lines] == [("peer_gone", frames, 7)]


def test_link_is_logged_as_it_comes_and_goes() -> None:
    seen = LinkLog(ManualClock())

    with capture_logs() as lines:
        seen.link_up(PeerId(2, 7), "hub-2", "10.0.0.2:7883")
        for reason in (LinkClose.SILENT, LinkClose.LEFT, LinkClose.CLOSED):
            seen.link_down(PeerId(2, 7), reason, "")

    assert [(line["event"], line["log_level"]) for line in lines] == [
        ("link to another hub is up", "info"),
        ("link to another hub is down", "warning"),
        ("link to another hub is down", "info"),
        ("link to another hub is down", "info"),
    ]
