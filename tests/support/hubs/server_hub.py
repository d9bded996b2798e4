"""Hubs whose every store is on the real servers, as `make services` configures them; each test has tables and topics of its own.

Knows no fault: the tests say what is done to the servers.
"""

from __future__ import annotations

import json
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from iothub.base.units import Endpoint
from iothub_services.hbase import calls
from iothub_services.hbase.caller import DirectCaller
from ops.services.places import HOST
from ops.services.services import Services
from tests.support.hbase.own_tables import drop_tables
from tests.support.hubs.datadirs import fresh_hub
from tests.support.hubs.hub import Hub
from tests.support.ports import free_port
from tests.support.servers.kafka import own_topics
from tests.support.waiting import PATIENCE_S

REGIONS = 2
TIMEOUT_S = 3.0


@dataclass(frozen=True)
class Stores:
    """A namespace in HBase and topics in Kafka, both nobody else's. `environment`: what the hub's settings are changed by."""

    services: Services
    namespace: str
    environment: dict[str, str]


@contextmanager
def own_stores(services: Services) -> Iterator[Stores]:
    """Names of one's own; what was made under them is gone afterwards."""
    with own_topics(services) as kafka:
        namespace = f"t{uuid.uuid4().hex}"
        environment = {
            "IOTHUB_QUEUES__GIVE_UP": "2m",
            "IOTHUB_HBASE__NAMESPACE": namespace,
            "IOTHUB_HBASE__REGIONS": str(REGIONS),
            "IOTHUB_HBASE__TIMEOUT": f"{TIMEOUT_S:g}s",
            "IOTHUB_KAFKA__TOPIC_PREFIX": kafka.topic_prefix,
            "IOTHUB_KAFKA__PARTITIONS": str(kafka.partitions),
        }
        try:
            yield Stores(services, namespace, environment)
        finally:
            services.up()
            _drop_tables(services, namespace)


def server_hub(directory: Path, stores: Stores) -> Hub:
    """A hub, not started, with HTTP, tenant acme and its devices; the tables are there."""
    hub = fresh_hub(directory)
    hub.config_file = stores.services.places.hub_settings
    hub.environment = stores.environment
    hub.ports = {"tcp": free_port(), "http": free_port()}
    hub.run("hbase", "create-tables")
    return hub


def sister(hub: Hub, directory: Path) -> Path:
    """Make a second data directory for the same stores and accounts, as an operator would."""
    second = Hub(directory / "sister", environment=hub.environment, config_file=hub.config_file)
    second.run("init")
    return second.data_dir


def share_accounts(hub: Hub) -> None:
    """Have every hub of this environment use these accounts, and the key that their secrets are kept with."""
    url_file = hub.data_dir / "accounts.url"
    url_file.write_text(f"sqlite:///{hub.data_dir / 'accounts.db'}\n")
    url_file.chmod(0o600)
    pepper = hub.data_dir / "pepper"
    hub.environment = {
        **hub.environment,
        "IOTHUB_SQL__URL_FILE": str(url_file),
        "IOTHUB_AUTH__PEPPER_FILE": str(pepper),
    }


def alarms(hub: Hub) -> set[tuple[str, str]]:
    """Name and subject of what is raised now."""
    with urllib.request.urlopen(f"http://127.0.0.1:{hub.ports['http']}/status", timeout=PATIENCE_S) as answer:
        page = json.load(answer)
    return {(alarm["name"], alarm["subject"]) for alarm in page["alarms"]}


def _drop_tables(services: Services, namespace: str) -> None:
    with DirectCaller([Endpoint(HOST, services.ports.thrift)]) as caller:
        names = caller.call(calls.table_names())
    drop_tables(services, [name for name in names if name.startswith(f"{namespace}:".encode())])
