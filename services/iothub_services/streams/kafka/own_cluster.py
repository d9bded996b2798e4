"""A Kafka cluster for the streams of a running hub: nothing is sent, read or made there before its topics are seen to be ours.

Knows no installation: the caller's `claim` takes what is nobody's, and raises for what is somebody else's. A hub without its log on Kafka starts
while Kafka is away, so nobody has looked before; whoever makes the first client looks, in its own thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from iothub.config.sections import Kafka
from iothub_services.events.kafka.cluster import Client, KafkaCluster


class OwnCluster(KafkaCluster):
    """For any thread. Invariant: no client was made before `claim` has returned once."""

    def __init__(self, settings: Kafka, claim: Callable[[], None]) -> None:
        """`claim` blocks; it may be called in several threads at once, and raises IotHubError."""
        super().__init__(settings)
        self._claim = claim
        self._is_ours = False

    def _made(self, make: Callable[..., Client], **options: Any) -> Client:
        if not self._is_ours:
            self._claim()
            self._is_ours = True
        return super()._made(make, **options)
