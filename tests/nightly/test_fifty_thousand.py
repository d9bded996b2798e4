"""50,000 publishes to sessions that are away, on a hub with everything on HBase and Kafka, while HBase is killed in the middle.

The twin with 20,000 subscribes and Kafka: `tests/services/test_kafka_faults.py`, in its form for the night.
"""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path

import pytest

from ops.services.services import Services
from tests.support.clients.packets import PUBACK, PUBLISH
from tests.support.clients.raw import RawClient
from tests.support.hubs.hub import Hub
from tests.support.hubs.kafka_hub import PERSISTENT, readiness
from tests.support.hubs.server_hub import own_stores, server_hub
from tests.support.waiting import until

PUBLISHERS = 10
MESSAGES = 5_000  # of each
BODY_BYTES = 256
WINDOW = 50  # of one publisher, not acknowledged yet
RECOVERY_S = 10.0
PATIENCE_S = 300.0


class Publishing(threading.Thread):
    """Publishes so many numbers at QoS 1, in order, to a session of its own. `acknowledged`: how many."""

    def __init__(self, port: int, number: int) -> None:
        super().__init__(daemon=True)
        self.acknowledged = 0
        self.failure: BaseException | None = None
        self._topic = f"to/{number}"
        self._client = RawClient(port, 5, timeout=PATIENCE_S)
        self._client.connect(f"publisher-{number}", "acme/dev2", clean=False, props=PERSISTENT)

    def run(self) -> None:
        try:
            for number in range(MESSAGES):
                content = str(number).encode().ljust(BODY_BYTES)
                self._client.send(self._client.publish_bytes(self._topic, content, 1, number % 65_535 + 1))
                if number - self.acknowledged >= WINDOW:
                    self._take()
            while self.acknowledged < MESSAGES:
                self._take()
            self._client.disconnect()
        except BaseException as error:  # shown by the test's own thread
            self.failure = error

    def _take(self) -> None:
        answer = self._client.expect(PUBACK)
        assert answer.code == 0, f"{answer.code:#x}"
        self.acknowledged += 1


def _leave_sessions(hub: Hub) -> None:
    for number in range(PUBLISHERS):
        with RawClient(hub.ports["tcp"], 5) as client:
            client.connect(f"away-{number}", "acme/dev1", clean=False, props=PERSISTENT)
            client.subscribe((f"to/{number}", 1))
            client.disconnect()


def _received(hub: Hub, number: int) -> list[int]:
    """All that waits for one session, and proof that nothing comes behind it."""
    with RawClient(hub.ports["tcp"], 5, timeout=60) as client:
        assert client.connect(f"away-{number}", "acme/dev1", clean=False, props=PERSISTENT).session_present
        found = []
        for _ in range(MESSAGES):
            publish = client.expect(PUBLISH)
            found.append(int(publish.payload))
            client.ack(PUBACK, publish.packet_id)
        client.ping()
        assert client.received == []
        client.disconnect()
    return found


@pytest.mark.timeout(1800)
def test_kill_of_hbase_during_fifty_thousand_publishes_loses_nothing(services: Services, tmp_path: Path) -> None:
    """Every publish is acknowledged, and there once, in the order of its publisher; the hub is ready within 10 s."""
    with own_stores(services) as stores:
        hub = server_hub(tmp_path, stores)
        hub.start()
        try:
            _leave_sessions(hub)
            crowd = [Publishing(hub.ports["tcp"], number) for number in range(PUBLISHERS)]
            began = time.monotonic()
            for publisher in crowd:
                publisher.start()
            sent = PUBLISHERS * MESSAGES
            until(lambda: sum(each.acknowledged for each in crowd) > sent // 5, "a fifth of the PUBACKs", PATIENCE_S)
            services.kill("hbase")
            before = sum(each.acknowledged for each in crowd)
            services.up("hbase")
            returned = time.monotonic()
            until(lambda: readiness(hub)[0], "the hub is ready again", RECOVERY_S)
            ready_s = time.monotonic() - returned
            for publisher in crowd:
                publisher.join(PATIENCE_S)
            took_s = time.monotonic() - began
            failures = [each.failure for each in crowd]
            received = [_received(hub, number) for number in range(PUBLISHERS)]
        finally:
            hub.close()
    sys.stdout.write(
        f"{before} PUBACKs before the kill, ready {ready_s:.1f} s after the return, {took_s:.0f} s in all\n"
    )

    assert failures == [None] * PUBLISHERS
    assert received == [list(range(MESSAGES))] * PUBLISHERS
