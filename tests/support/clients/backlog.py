"""A publisher to one sleeping session, message by message, that notices when it is not acknowledged any more.

Knows no disk; the tests of full disks bring it.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.support.clients.packets import PUBACK, PUBLISH, Properties
from tests.support.clients.raw import RawClient
from tests.support.waiting import PATIENCE_S

BODY = b"x" * 4000
PERSISTENT: Properties = [(0x11, 3600)]


class Backlog:
    """Publishes to `to/sleeper` at QoS 1; the payload begins with its number."""

    def __init__(self, port: int, version: int = 5) -> None:
        self.client = RawClient(port, version)
        self.client.connect("publisher", "acme/dev2", clean=False, props=PERSISTENT if version == 5 else None)
        self.sent = 0
        self.acknowledged: list[int] = []

    def send(self) -> None:
        self.sent += 1
        content = str(self.sent).encode().ljust(8) + BODY
        self.client.send(self.client.publish_bytes("to/sleeper", content, 1, self.sent))

    def take(self, timeout: float) -> bool:
        """Wait for the next PUBACK; False: it did not come."""
        try:
            found = self.client.expect(PUBACK, timeout)
        except TimeoutError:
            return False
        assert found.code == 0, f"{found.code:#x} although nothing was given up"
        self.acknowledged.append(found.packet_id)
        return True

    def deliver(self, count: int) -> None:
        for _ in range(count):
            self.send()
            assert self.take(PATIENCE_S)

    def until_stuck(self, has_failed: Callable[[], bool] = lambda: True) -> None:
        """Publish until one is not acknowledged. `has_failed`: does the hub say that it cannot write, or is it slow?"""
        while True:
            self.send()
            while not self.take(1.0):
                if has_failed():
                    return


def make_sleeper(port: int) -> None:
    with RawClient(port, 5) as sleeper:
        sleeper.connect("sleeper", "acme/dev1", clean=False, props=PERSISTENT)
        sleeper.subscribe(("to/sleeper", 1))
        sleeper.disconnect()


def wake_sleeper(port: int, count: int) -> list[int]:
    """Everything that waits for it, until there are `count` different messages."""
    got: list[int] = []
    with RawClient(port, 5, timeout=PATIENCE_S) as sleeper:
        assert sleeper.connect("sleeper", "acme/dev1", clean=False, props=PERSISTENT).session_present
        while len(set(got)) < count:
            found = sleeper.expect(PUBLISH)
            got.append(int(found.payload[:8]))
            sleeper.ack(PUBACK, found.packet_id)
    return got
