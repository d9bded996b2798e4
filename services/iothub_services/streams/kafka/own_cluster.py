"""A Kafka cluster for the streams of a running hub: nothing is sent, read or made there before the topics are known to be ours.

Knows no installation: the caller's `claim` claims topics without an owner, and raises if they have another one. A hub whose log is not on Kafka
starts also while Kafka is away, so the first client calls `claim`, in its own thread.
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
