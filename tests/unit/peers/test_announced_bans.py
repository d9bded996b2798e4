"""Bans after failed logins that hubs announce to each other."""

from __future__ import annotations

import msgpack
import pytest

from iothub.base.errors import UnavailableError
from iothub.peers.announced_bans import BANS, BANS_BYTES, BanAnnouncer, BanReceiver, decode_bans, encode_bans
from iothub.peers.frames import BadFrameError, FrameType
from iothub.peers.ports import PeerId
from iothub.testing.clock import ManualClock
from iothub_services.auth.failures import Failures, FailureSettings

TWO, THREE = PeerId(2, 1), PeerId(3, 1)
BAN = ["acme", "dev1", "192.0.2.1", 9.0]


class Links:
    """Two hubs that were linked, one of which takes no more."""

    def __init__(self) -> None:
        self.sent: list[tuple[PeerId, FrameType, bytes]] = []

    def linked(self) -> tuple[PeerId, ...]:
        return TWO, THREE

    def send(self, peer: PeerId, frame_type: FrameType, body: bytes) -> int:
        if peer == TWO:
            raise UnavailableError("twice link_bytes wait")
        self.sent.append((peer, frame_type, body))
        return 1


def receiver_of(links: Links, failures: Failures) -> BanReceiver:
    return BanReceiver(links, failures.ban, failures.in_force)


@pytest.mark.parametrize("device", ["dev1", "d" * 60_000])
def test_a_ban_of_one_hub_is_in_force_at_the_other_for_as_long(device: str) -> None:
    """A name that does not exist may be as long as a username; a link that takes no more keeps it from nobody else."""
    links, clock = Links(), ManualClock()
    failures = Failures(FailureSettings(ban_s=5.0), clock)

    BanAnnouncer(links).announce_ban("acme", device, "192.0.2.1", 900.0)
    [(peer, frame_type, body)] = links.sent
    receiver_of(links, failures).frame(TWO, frame_type, body)

    assert (peer, failures.is_banned("acme", device, "192.0.2.1")) == (THREE, True)
    assert not failures.is_banned("acme", device, "192.0.2.2")
    clock.advance(899.9)
    assert failures.is_banned("acme", device, "192.0.2.1")
    clock.advance(0.2)
    assert not failures.is_banned("acme", device, "192.0.2.1")


def test_a_hub_that_comes_later_is_told_what_is_in_force_and_for_how_long() -> None:
    """By every hub that is there, whoever made the ban: that one may be gone. One that takes no more counts by itself."""
    links, clock = Links(), ManualClock()
    here, there = Failures(FailureSettings(failures=1, ban_s=100.0), clock), Failures(FailureSettings(), clock)
    here.count("acme", "mine", "192.0.2.1")
    here.ban("acme", "announced", "192.0.2.1", 30.0)
    here.ban("acme", "over", "192.0.2.1", 10.0)
    clock.advance(20.0)

    for peer in (TWO, THREE):
        receiver_of(links, here).peer_up(peer)
    for _, frame_type, body in links.sent:
        receiver_of(links, there).frame(TWO, frame_type, body)

    assert [peer for peer, _, _ in links.sent] == [THREE]
    assert there.in_force() == [("acme", "mine", "192.0.2.1", 80.0), ("acme", "announced", "192.0.2.1", 10.0)]


def test_a_hub_without_bans_sends_nothing_to_one_that_comes() -> None:
    links = Links()

    receiver_of(links, Failures(FailureSettings(), ManualClock())).peer_up(THREE)

    assert links.sent == []


@pytest.mark.parametrize(("count", "device"), [(2 * BANS + 1, "d"), (40, "\u00e9" * 8_000)])
def test_many_bans_travel_in_frames_of_bounded_size(count: int, device: str) -> None:
    failures = Failures(FailureSettings(), ManualClock())
    for number in range(count):
        failures.ban("acme", f"{device}{number}", "192.0.2.1", 9.0)
    links = Links()

    receiver_of(links, failures).peer_up(THREE)

    bodies = [body for _, _, body in links.sent]
    assert [tuple(ban) for body in bodies for ban in decode_bans(body)] == failures.in_force()
    assert max(map(len, bodies)) <= BANS_BYTES
    assert len(bodies) <= 20


def test_a_ban_without_end_travels() -> None:
    """`auth.ban` may be longer than a frame can say."""
    links = Links()

    BanAnnouncer(links).announce_ban("acme", "dev1", "192.0.2.1", 1e12)

    [[ban]] = [decode_bans(body) for _, _, body in links.sent]
    assert ban.left_s == 10 * 366 * 86_400.0


@pytest.mark.parametrize(
    "bans",
    [
        None,
        {},
        "acme",
        [None],
        [BAN[:3]],
        [[*BAN, 1]],
        [[1, *BAN[1:]]],
        [["acme", None, *BAN[2:]]],
        [["acme", "dev1", b"x", 9.0]],
        [[*BAN[:3], 9]],
        [[*BAN[:3], 0.0]],
        [[*BAN[:3], float("nan")]],
        [[*BAN[:3], float("inf")]],
        [BAN] * (BANS + 1),
    ],
)
def test_a_ban_that_cannot_be_read_closes_the_link(bans: object) -> None:
    with pytest.raises(BadFrameError):
        decode_bans(msgpack.packb({"bans": bans}))


def test_of_a_frame_with_one_that_cannot_be_read_nothing_is_kept() -> None:
    failures = Failures(FailureSettings(), ManualClock())
    body = msgpack.packb({"bans": [BAN, [*BAN[:3], 0.0]]})

    with pytest.raises(BadFrameError):
        receiver_of(Links(), failures).frame(TWO, FrameType.BANNED, body)

    assert failures.in_force() == []


def test_bans_are_what_they_were_when_they_were_encoded() -> None:
    [body] = encode_bans(decode_bans(msgpack.packb({"bans": [BAN, BAN]})))

    assert [list(ban) for ban in decode_bans(body)] == [BAN, BAN]
