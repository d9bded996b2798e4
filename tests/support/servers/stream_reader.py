"""An application that reads a stream: a plain consumer, which knows nothing of a hub, and writes each value on a line of a file.

It is a program: `python -m tests.support.servers.stream_reader BROKER TOPIC FILE`, until it is killed.
"""

from __future__ import annotations

import sys
from pathlib import Path

from kafka import KafkaConsumer


def read(broker: str, topic: str, file: Path) -> None:
    """Read from the topic's beginning on, for ever."""
    consumer = KafkaConsumer(topic, bootstrap_servers=broker, group_id=None, auto_offset_reset="earliest")
    with file.open("wb") as lines:
        while True:
            for records in consumer.poll(timeout_ms=500).values():
                lines.writelines(record.value + b"\n" for record in records)
            lines.flush()


if __name__ == "__main__":
    read(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
