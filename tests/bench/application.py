"""An application in Python that takes what `mqttload publish` publishes, and checks it: a consumer of Kafka, or a subscriber of QoS 1.

`application.py kafka BROKER TOPIC` uses kafka-python with its usual settings, `application.py mqtt PORT USER SECRET` paho-mqtt, with a session that
stays. It says `ready` when it listens. A line with a number on its standard input says how many messages there will have been; when it has them, or
none came for a while, one JSON line says when how many came and what was wrong. Knows no hub.
"""

from __future__ import annotations

import json
import select
import struct
import sys
import time
from collections.abc import Callable
from typing import Any

from kafka import KafkaConsumer
from kafka.structs import TopicPartition
from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion

_STAMP = struct.Struct("<IIQ")  # run, flow, number: see struct stamp in load/mqttload.c
_PATIENCE_S = 20.0
_STEP_S = 0.02  # arrivals are told so finely


class Checker:
    """What came, and when; every flow's messages come in their order, each once."""

    def __init__(self) -> None:
        self.flows: dict[tuple[int, int], int] = {}
        self.received = self.wrong = 0
        self.arrivals: list[tuple[float, int]] = []
        self._counted = 0

    def take(self, payload: bytes) -> None:
        run, flow, number = _STAMP.unpack_from(payload)
        self.wrong += number != self.flows.get((run, flow), 0)
        self.flows[run, flow] = number + 1
        self.received += 1

    def look(self, now: float) -> None:
        """Note how many came since the last look."""
        if self.received > self._counted:
            self.arrivals.append((now, self.received - self._counted))
            self._counted = self.received


def until_all_came(checker: Checker, step: Callable[[], object]) -> None:
    """Go on by steps until as many came as is said, or none for long."""
    expected, last, seen = None, time.monotonic(), 0
    while expected is None or (checker.received < expected and time.monotonic() - last < _PATIENCE_S):
        step()
        now = time.monotonic()
        if checker.received > seen:
            last, seen = now, checker.received
        if not checker.arrivals or now - checker.arrivals[-1][0] >= _STEP_S:
            checker.look(now)
            if expected is None and select.select([sys.stdin], [], [], 0)[0]:
                expected, last = int(sys.stdin.readline()), now
    checker.look(time.monotonic())


def consumer(checker: Checker, broker: str, topic: str) -> Callable[[], object]:
    """Begin at the topic's end."""
    made = KafkaConsumer(bootstrap_servers=broker)
    partitions = [TopicPartition(topic, number) for number in sorted(made.partitions_for_topic(topic))]
    made.assign(partitions)
    made.seek_to_end()
    for each in partitions:
        made.position(each)

    def step() -> None:
        for records in made.poll(timeout_ms=100).values():
            for record in records:
                checker.take(record.value)

    return step


def subscriber(checker: Checker, port: str, user: str, secret: str) -> Callable[[], object]:
    """Subscribe to everything of the bench."""
    made = Client(CallbackAPIVersion.VERSION2, "bench-application", clean_session=False)
    made.username_pw_set(user, secret)
    granted: list[Any] = []

    def on_message(_client: Client, _data: object, message: MQTTMessage) -> None:
        checker.take(message.payload)

    made.on_message = on_message
    made.on_connect = lambda client, *_: client.subscribe("bench/#", 1)
    made.on_subscribe = lambda _client, _data, _id, codes, _properties: granted.extend(codes)
    made.connect("127.0.0.1", int(port))
    while not granted:
        made.loop(0.1)
    if granted[0].is_failure:
        sys.exit(f"the subscription was refused: {granted[0]}")
    return lambda: made.loop(0.1)


def main() -> None:
    kind, *arguments = sys.argv[1:]
    checker = Checker()
    step = {"kafka": consumer, "mqtt": subscriber}[kind](checker, *arguments)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    cpu_s = time.process_time()
    until_all_came(checker, step)
    figures = {"received": checker.received, "wrong": checker.wrong, "arrivals": checker.arrivals}
    sys.stdout.write(json.dumps(figures | {"cpu_s": time.process_time() - cpu_s}) + "\n")


if __name__ == "__main__":
    main()
