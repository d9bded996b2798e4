"""Bans after failed logins that hubs announce to each other."""

from __future__ import annotations

import msgpack
import pytest

from iothub.base.errors import UnavailableError
from iothub.peers.announced_bans import AnnouncedBan, BanAnnouncer, BanReceiver
from iothub.peers.frames import BadFrameError, FrameType
from iothub.peers.ports import PeerId
from iothub.testing.clock import ManualClock
from iothub_services.auth.failures import Failures, FailureSettings

TWO, THREE = PeerId(2, 1), PeerId(3, 1)
FIELDS = {"tenant": "acme", "device": "dev1", "source": "192.0.2.1", "left_s": 9.0}


class Links:
    """Two hubs, one of which takes no more."""

    def __init__(self) -> None:
        self.sent: list[tuple[PeerId, FrameType, bytes]] = []

    def up(self) -> tuple[PeerId, ...]:
        return TWO, THREE

    def send(self, peer: PeerId, frame_type: FrameType, body: bytes) -> int:
        if peer == TWO:
            raise UnavailableError("twice link_bytes wait")
        self.sent.append((peer, frame_type, body))
        return 1


@pytest.mark.parametrize("device", ["dev1", "d" * 60_000])
def test_a_ban_of_one_hub_is_in_force_at_the_other_for_as_long(device: str) -> None:
    """A name that does not exist may be as long as a username; a link that takes no more keeps it from nobody else."""
    links, clock = Links(), ManualClock()
    failures = Failures(FailureSettings(ban_s=5.0), clock)

    BanAnnouncer(links).announce_ban("acme", device, "192.0.2.1", 900.0)
    [(peer, frame_type, body)] = links.sent
    BanReceiver(failures.ban).frame(TWO, frame_type, body)

    assert (peer, failures.is_banned("acme", device, "192.0.2.1")) == (THREE, True)
    assert not failures.is_banned("acme", device, "192.0.2.2")
    clock.advance(899.9)
    assert failures.is_banned("acme", device, "192.0.2.1")
    clock.advance(0.2)
    assert not failures.is_banned("acme", device, "192.0.2.1")


@pytest.mark.parametrize(
    "changed",
    [
        {"tenant": 1},
        {"device": None},
        {"source": b"x"},
        {"left_s": 9},
        {"left_s": 0.0},
        {"left_s": float("nan")},
        {"left_s": float("inf")},
    ],
)
def test_a_ban_that_cannot_be_read_closes_the_link(changed: dict[str, object]) -> None:
    with pytest.raises(BadFrameError):
        AnnouncedBan.decode(msgpack.packb({**FIELDS, **changed}))
