"""What membership asks of its links, written down (`iothub.peers.membership.MemberLinks`). Which hubs are linked says the test's own class."""

from __future__ import annotations

from iothub.peers.ports import PeerId


class AskedLinks:
    """`said`: what was asked, in order."""

    def __init__(self) -> None:
        self.said: list[tuple[str, PeerId]] = []

    def mute(self, peer: PeerId) -> None:
        self.said.append(("mute", peer))

    def unmute(self, peer: PeerId) -> None:
        self.said.append(("unmute", peer))

    def expel(self, peer: PeerId) -> None:
        self.said.append(("expel", peer))

    def drop(self, peer: PeerId) -> None:
        self.said.append(("drop", peer))
