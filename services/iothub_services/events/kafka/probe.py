"""Is the Kafka cluster reached, and does it let the hub in? Knows the cluster and no topic."""

from __future__ import annotations

from iothub_services.events.kafka.cluster import ADVICE, KafkaCluster
from iothub_services.probing import Probe, probe_by


def probe(cluster: KafkaCluster) -> Probe:
    """Connect, list the topics, close."""

    def list_topics() -> str:
        with cluster.admin() as admin:
            return f"{cluster.name} lists {len(admin.list_topics())} topics"

    return probe_by(list_topics, ADVICE)
