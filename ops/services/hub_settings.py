"""The configuration file with which a hub runs on the real servers.

Knows the names of the settings and the addresses; what the settings mean is the hub's business.
"""

from __future__ import annotations

import shlex
import sys

from ops.services.places import HOST, ROOT, SQL_ACCOUNT, Places, Ports

_ADMIN_PROGRAM = "hbase-java"


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
admin_program = "{_ADMIN_PROGRAM}"
regions = 16  # one server has them all, and opens each again after a crash

[kafka]
brokers = ["{HOST}:{ports.kafka}"]
replication = 1

# Accounts are in the hub's data directory. To have them in a server: take these two signs away, and name the other file for PostgreSQL.
# [sql]
# url_file = "mariadb.url"  # or "postgresql.url"
"""


def sql_urls(ports: Ports) -> dict[str, str]:
    """Return the url of each SQL server's database, by the name of the server."""
    at = f"{SQL_ACCOUNT}:{SQL_ACCOUNT}@{HOST}"
    return {
        "mariadb": f"mysql+pymysql://{at}:{ports.mariadb}/{SQL_ACCOUNT}",
        "postgresql": f"postgresql+psycopg://{at}:{ports.postgresql}/{SQL_ACCOUNT}",
    }


def write_hub_settings(places: Places, ports: Ports) -> None:
    """Write the file, and what it names, each whole or not at all."""
    for name, url in sql_urls(ports).items():
        _write(places, f"{name}.url", f"{url}\n", 0o600)
    _write(places, _ADMIN_PROGRAM, _admin_program(places), 0o755)
    _write(places, places.hub_settings.name, hub_settings(ports), 0o644)


def _admin_program(places: Places) -> str:
    """Return what HBase's own `hbase` is elsewhere: it runs a Java class on HBase's class path and settings."""
    command = shlex.join([sys.executable, "-m", "ops.services", "--dir", str(places.folder), "java", "hbase"])
    return f'#!/bin/sh\ncd {shlex.quote(str(ROOT))} && exec {command} "$@"\n'


def _write(places: Places, name: str, text: str, mode: int) -> None:
    half = places.folder / f"{name}.half"
    half.write_text(text, encoding="utf-8")
    half.chmod(mode)
    half.rename(places.folder / name)
