"""The configuration file with which a hub runs on the real servers.

Knows the names of the settings and the addresses; what the settings mean is the hub's business.
"""

from __future__ import annotations

from ops.services.places import HOST, Places, Ports


def hub_settings(ports: Ports) -> str:
    """Return `iothub.toml` with every back end's address, and HBase and Kafka chosen for every need."""
    return f"""\
# Written by `make services`: a hub on the real servers of this machine. Changes are overwritten at the next start.
config_version = 1

[queues]
driver = "hbase"

[events]
driver = "kafka"

[state]
driver = "hbase"

[retained]
driver = "hbase"

[hbase]
thrift = ["{HOST}:{ports.thrift}"]

[kafka]
brokers = ["{HOST}:{ports.kafka}"]
replication = 1
"""


def write_hub_settings(places: Places, ports: Ports) -> None:
    """Write the file whole, or not at all."""
    half = places.hub_settings.with_suffix(".half")
    half.write_text(hub_settings(ports), encoding="utf-8")
    half.rename(places.hub_settings)
