"""A producer of kafka-python that waits for metadata asks for them once, and then waits.

Knows the library's metadata and no record. While a partition that has records has no leader that is known (an election, a topic that is gone), the
library's thread asks anew each time round, and each question wakes that same thread: it would take a whole processor until there is a leader.
"""

from __future__ import annotations

from typing import Any

from kafka import KafkaProducer


def ask_once(producer: KafkaProducer) -> None:
    """Have a question for metadata that is under way already begin nothing new; when it has ended, the next one does."""
    metadata = producer._metadata
    ask = metadata.request_update

    def request_update() -> Any:
        asked = metadata._future
        is_under_way = asked is not None and not asked.is_done and metadata._refresh_loop_future is not None
        return asked if is_under_way and metadata._need_update else ask()

    metadata.request_update = request_update
