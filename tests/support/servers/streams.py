"""Streams on the real Kafka: a hub with one, a publisher that knows what was acknowledged, a consumer of any make.

Knows no fault: the tests say what is done to the servers.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from kafka import KafkaConsumer, KafkaProducer
from kafka.structs import TopicPartition

from iothub.config.sections import Kafka
from ops.services.services import Services
from tests.support.clients.packets import PUBACK
from tests.support.clients.raw import ClosedError, RawClient
from tests.support.hubs.datadirs import fresh_hub
from tests.support.hubs.hub import Hub
from tests.support.ports import free_port
from tests.support.servers.kafka import broker
from tests.support.waiting import PATIENCE_S

_PATIENCE_S = 60.0
_RECEIVE_MAXIMUM = 0x21
_REFUSED = 0x80  # reason codes from here on


def stream_hub(directory: Path, kafka: Kafka, **settings: str) -> Hub:
    """A hub, not started, with its log in a file and streams on this Kafka."""
    hub = fresh_hub(directory, **settings)
    lines = [
        "[kafka]",
        f'brokers = ["{kafka.brokers[0]}"]',
        f'topic_prefix = "{kafka.topic_prefix}"',
        f'timeout = "{kafka.timeout_s:g}s"',
        "replication = 1",
    ]
    with (hub.data_dir / "iothub.toml").open("a") as file:
        file.write("\n" + "\n".join(lines) + "\n")
    hub.ports = {"tcp": free_port(), "http": free_port()}
    return hub


@contextmanager
def consumer(services: Services, topic: str) -> Iterator[KafkaConsumer]:
    """A plain consumer at the topic's beginning."""
    made = KafkaConsumer(bootstrap_servers=broker(services), group_id=None, auto_offset_reset="earliest")
    try:
        deadline = time.monotonic() + _PATIENCE_S
        while not (numbers := made.partitions_for_topic(topic)):
            assert time.monotonic() < deadline, f"no topic {topic}"
        made.assign([TopicPartition(topic, number) for number in sorted(numbers)])
        made.seek_to_beginning()
        yield made
    finally:
        made.close()


def records_of(services: Services, topic: str) -> Iterator[tuple[dict[str, bytes], bytes | None, bytes]]:
    """Yield headers, key and value of everything that is in a topic now, in the order of each partition."""
    with consumer(services, topic) as made:
        ends = made.end_offsets(list(made.assignment()))
        deadline = time.monotonic() + _PATIENCE_S
        while any(made.position(each) < end for each, end in ends.items()):
            assert time.monotonic() < deadline, f"nothing more of topic {topic} came for {_PATIENCE_S:.0f} s"
            for records in made.poll(timeout_ms=500).values():
                deadline = time.monotonic() + _PATIENCE_S
                yield from ((dict(each.headers), each.key, each.value) for each in records)


def read_all(services: Services, topic: str) -> list[tuple[dict[str, bytes], bytes | None, bytes]]:
    """Return headers, key and value of everything in a topic, in the order of each partition."""
    return list(records_of(services, topic))


def write(services: Services, topic: str, *records: tuple[dict[str, str], bytes]) -> None:
    """Write records as an application does."""
    producer = KafkaProducer(bootstrap_servers=broker(services))
    try:
        for headers, value in records:
            encoded = [(name, text.encode()) for name, text in headers.items()]
            producer.send(topic, value, headers=encoded, partition=0).get(timeout=PATIENCE_S)
    finally:
        producer.close(timeout=10)


@contextmanager
def reading(services: Services, topic: str, file: Path) -> Iterator[None]:
    """An application beside: a plain consumer in a process of its own, which writes each value on a line of `file` as it comes."""
    command = [sys.executable, "-m", "tests.support.servers.stream_reader", broker(services), topic, str(file)]
    process = subprocess.Popen(command)
    try:
        yield
        assert process.poll() is None, f"the consumer ended with {process.returncode}"
    finally:
        process.kill()
        process.wait()


def records_in(services: Services, topic: str) -> int:
    """Count what a topic has now, from its first record on."""
    with consumer(services, topic) as made:
        return sum(made.end_offsets(list(made.assignment())).values())


class Publisher(threading.Thread):
    """One QoS 1 publisher that goes on over every end of its connection: what was not acknowledged is sent again, in its order.

    `acknowledged`: how many numbers, from 0 on, are; `window`: so many more may be sent. When one is refused (5.0), nothing new is sent until all
    that was sent is answered; then it goes on from there. `refused`: those numbers; `codes`: every answer's.
    """

    def __init__(self, port: int, name: str, topic: str, count: int, window: int = 20, version: int = 4) -> None:
        super().__init__(daemon=True)
        self.client_id, self.acknowledged, self.count = name, 0, count
        self.connections = 0
        self.refused: set[int] = set()
        self.codes: set[int] = set()
        self._port, self._topic, self.window, self._version = port, topic, window, version
        self.is_stopped = False

    def run(self) -> None:
        while self.acknowledged < self.count and not self.is_stopped:
            try:
                self._publish()
            except (ClosedError, OSError, AssertionError):
                time.sleep(0.1)  # the hub is away

    def _publish(self) -> None:
        with RawClient(self._port, self._version, timeout=_PATIENCE_S) as client:
            allowed = client.connect(self.client_id, "acme/dev1", clean=False).property(_RECEIVE_MAXIMUM)
            window = min(self.window, allowed) if isinstance(allowed, int) else self.window
            self.connections += 1
            sent = answered = self.acknowledged
            while self.acknowledged < self.count and not self.is_stopped:
                if sent == answered:
                    sent = answered = self.acknowledged
                while answered == self.acknowledged and sent < min(self.count, answered + window):
                    payload = f"{self.client_id} {sent}".encode()
                    client.send(client.publish_bytes(self._topic, payload, 1, sent % 65_535 + 1))
                    sent += 1
                answer = client.expect(PUBACK)
                assert answer.packet_id == answered % 65_535 + 1
                self._answered(answered, answer.code)
                answered += 1

    def _answered(self, number: int, code: int) -> None:
        self.codes.add(code)
        if code >= _REFUSED:
            self.refused.add(number)
        elif number == self.acknowledged:
            self.acknowledged += 1


def first_places(values: Iterable[bytes]) -> dict[str, list[int]]:
    """Return the numbers of each publisher in the order in which each came first."""
    seen: dict[str, dict[int, None]] = {}
    for value in values:
        name, number = value.decode().split()
        seen.setdefault(name, {}).setdefault(int(number))
    return {name: list(numbers) for name, numbers in seen.items()}


def last_places(values: Sequence[bytes]) -> dict[str, list[int]]:
    """Return the numbers of each publisher in the order in which each came last."""
    return {name: numbers[::-1] for name, numbers in first_places(reversed(values)).items()}
