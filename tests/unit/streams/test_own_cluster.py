"""A cluster for streams: no client before its topics are seen to be ours, and one look is enough."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import pytest

from iothub.base.errors import BackendError, ConflictError
from iothub_services.events.kafka.cluster import KafkaCluster
from iothub_services.streams.kafka.own_cluster import OwnCluster
from tests.support.servers.fake_kafka import SETTINGS


def test_no_client_is_made_before_the_topics_are_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that is away, and an installation that is another one, are asked again by the next client; who is ours is asked once."""
    answers: list[Exception | None] = [BackendError("away", retryable=True), ConflictError("belongs to another"), None]
    made: list[object] = []

    def make_client(_cluster: KafkaCluster, make: object, **_options: object) -> Mock:
        made.append(make)
        return Mock()

    monkeypatch.setattr(KafkaCluster, "_made", make_client)

    def claim() -> None:
        answer = answers.pop(0)
        if answer is not None:
            raise answer

    cluster: Any = OwnCluster(SETTINGS, claim)
    with pytest.raises(BackendError):
        cluster.consumer()
    with pytest.raises(ConflictError):
        cluster.producer()
    assert made == []
    cluster.producer()
    cluster.consumer()

    assert (len(made), answers) == (2, [])
