"""Hubs whose session log is on the real Kafka, and what tests ask of both.

Knows no fault: the tests say what is done to the servers.
"""

from __future__ import annotations

import struct
import threading
import urllib.error
import urllib.request
from pathlib import Path

from iothub.config.sections import Kafka
from iothub.records.events import EventType
from iothub.records.state import SessionState, fold
from iothub.testing.event_contract import refuse_damage
from iothub_services.events.kafka.log import KafkaEvents
from iothub_services.events.port import NOWHERE, LoggedEvent
from iothub_services.events.reading import read_between
from tests.support.clients.packets import SUBACK, string
from tests.support.clients.raw import ClosedError, RawClient
from tests.support.hubs.datadirs import fresh_hub
from tests.support.hubs.hub import Hub
from tests.support.ports import free_port
from tests.support.waiting import PATIENCE_S

PERSISTENT = [(0x11, 3600)]  # Session Expiry Interval
_WINDOW = 50  # SUBSCRIBEs of one client that wait for their answers
_PATIENCE_S = 120.0


def kafka_hub(directory: Path, kafka: Kafka, **settings: str) -> Hub:
    """A hub, not started, with HTTP, whose events go to these topics."""
    hub = fresh_hub(directory, **settings)
    lines = [
        "[events]",
        'driver = "kafka"',
        "[kafka]",
        f'brokers = ["{kafka.brokers[0]}"]',
        f'topic_prefix = "{kafka.topic_prefix}"',
        f'timeout = "{kafka.timeout_s:g}s"',
        f"partitions = {kafka.partitions}",
        f"replication = {kafka.replication}",
    ]
    with (hub.data_dir / "iothub.toml").open("a") as file:
        file.write("\n" + "\n".join(lines) + "\n")
    hub.ports = {"tcp": free_port(), "http": free_port()}
    return hub


def readiness(hub: Hub) -> tuple[bool, str]:
    """Is it ready, and what does it say?"""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{hub.ports['http']}/readyz", timeout=PATIENCE_S) as answer:
            return True, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return False, error.read().decode()
    except OSError as error:
        return False, f"no answer: {error}"


def log_of(kafka: Kafka) -> list[LoggedEvent]:
    """The whole session log, read by somebody else."""
    log = KafkaEvents(kafka, is_read_only=True)
    try:
        return list(read_between(log, NOWHERE, log.end(), refuse_damage))
    finally:
        log.close()


def folded(events: list[LoggedEvent]) -> dict[str, SessionState]:
    """The sessions that these events make, by client id."""
    sessions: dict[str, SessionState] = {}
    for _, offset, event in events:
        state = fold(sessions.get(event.client_id), event, offset)
        if state is not None:
            sessions[event.client_id] = state
    return sessions


def subscribed(events: list[LoggedEvent], topic_filter: str) -> int:
    """How many events say that this filter was subscribed."""
    return sum(
        logged.event.type is EventType.SESSION_SUBSCRIBED and logged.event.facts["filter"] == topic_filter
        for logged in events
    )


class Subscribing(threading.Thread):
    """One persistent session that subscribes to many filters, one SUBSCRIBE for each. `granted`: the acknowledged ones."""

    def __init__(self, port: int, client_id: str, count: int) -> None:
        super().__init__(daemon=True)
        self.client_id = client_id
        self.granted: set[str] = set()
        self._client = RawClient(port, 5, timeout=_PATIENCE_S)
        self._client.connect(client_id, "acme/dev1", clean=False, props=PERSISTENT)
        self._count = count

    def run(self) -> None:
        sent: dict[int, str] = {}
        try:
            for number in range(self._count):
                topic_filter, packet_id = f"{self.client_id}/{number}", number % 65_535 + 1
                sent[packet_id] = topic_filter
                body = struct.pack(">H", packet_id) + b"\0" + string(topic_filter) + b"\1"
                self._client.send_packet(0x82, body)
                if len(sent) >= _WINDOW:
                    self._take(sent)
            while sent:
                self._take(sent)
        except (ClosedError, OSError):
            return  # what was not acknowledged may be missing

    def close(self) -> None:
        self.join(_PATIENCE_S)
        self._client.close()

    def _take(self, sent: dict[int, str]) -> None:
        answer = self._client.expect(SUBACK)
        topic_filter = sent.pop(answer.packet_id)
        if answer.codes[0] < 0x80:
            self.granted.add(topic_filter)
