"""Five thousand devices at a hub with a cold memory and a warm Redis: the long form of `tests/services/sql_and_redis/test_shared_cache.py`.

First the authenticator alone, over SQLite; then a hub in a process of its own, over MariaDB, whose clients come by TCP.
"""

from __future__ import annotations

import re
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import Connection, create_engine, text
from sqlalchemy.pool import NullPool

from iothub_services.auth.authenticator import Authenticated
from ops.services.hub_settings import sql_urls
from ops.services.services import Services
from tests.support.clients.fleet import import_fleet, storm
from tests.support.hubs.hub import Hub
from tests.support.hubs.redis_cache import accounts_with, hubs, settings_of
from tests.support.hubs.sql_hub import sql_hubs
from tests.support.servers.sql_servers import own_database

DEVICES = 5_000
AT_ONCE = 200
COLD_AT_ONCE = 1_000  # while Redis is cold, too: all of them wait for SQL
IDLE_S = 10.0
STRAY = DEVICES // 100  # SELECTs that an idle hub might not have asked in IDLE_S, such as those of each minute


def test_storm_of_5000_asks_no_sql(services: Services, tmp_path: Path) -> None:
    """None for a device, none for the tenant; the hub that filled Redis asked once for each."""
    store = accounts_with(tmp_path / "accounts.db", DEVICES)
    names = [f"dev{number}" for number in range(DEVICES)]
    with hubs(store, settings_of(services.ports.redis, timeout_s=5.0)) as (warm, cold):
        for start in range(0, DEVICES, 500):
            warm.connect(*names[start : start + 500])

        answers = cold.connect(*names)

        assert sum(isinstance(answer, Authenticated) for answer in answers) == DEVICES
        assert dict(cold.accounts.asked) == {}
        assert warm.accounts.asked["device"] == DEVICES
    store.close()


def test_restarted_hub_asks_mariadb_for_none_of_5000_devices(accounts_servers: Services, tmp_path: Path) -> None:
    """The first storm asks for each, and refuses nobody who has to wait for that; after the restart MariaDB hears what an idle hub asks."""
    with own_database(accounts_servers, "mariadb") as url, _server(accounts_servers) as server:
        (hub,) = sql_hubs(tmp_path, url)
        redis = settings_of(accounts_servers.ports.redis)
        hub.environment = {
            **hub.environment,
            "IOTHUB_AUTH__SHARED_CACHE": "redis",
            "IOTHUB_REDIS__ADDRESSES": f"127.0.0.1:{accounts_servers.ports.redis}",
            "IOTHUB_REDIS__PREFIX": redis.prefix,
            "IOTHUB_REDIS__TIMEOUT": "5s",  # a busy machine's stalls are not what is asked for here
        }
        fleet = import_fleet(hub, "acme", DEVICES, tmp_path)
        try:
            hub.start()
            before = _selects(server)
            first = storm(hub.ports["tcp"], fleet, COLD_AT_ONCE)
            asked_first = _selects(server) - before
            hub.stop()

            hub.start()
            before = _selects(server)
            time.sleep(IDLE_S)
            idle_per_s = (_selects(server) - before) / IDLE_S
            before = _selects(server)
            second = storm(hub.ports["tcp"], fleet, AT_ONCE)
            asked = _selects(server) - before
            found = {result: _records(hub, result) for result in ("hit", "miss", "stale", "failed", "forged")}
        finally:
            hub.close()

    print(
        f"cold {first.seconds:.1f} s, {asked_first} SELECTs; warm {second.seconds:.1f} s, {asked} SELECTs, {idle_per_s:.1f} a second when idle"
    )
    assert first.codes == second.codes == {0: DEVICES}
    assert asked_first >= DEVICES
    assert asked - idle_per_s * second.seconds < STRAY
    assert found == {"hit": DEVICES + 1, "miss": 0, "stale": 0, "failed": 0, "forged": 0}  # each device, and the tenant


@contextmanager
def _server(services: Services) -> Iterator[Connection]:
    services.up("mariadb")
    engine = create_engine(sql_urls(services.ports)["mariadb"], poolclass=NullPool, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        yield connection


def _selects(server: Connection) -> int:
    """How many SELECTs the server has been asked, by anybody."""
    return int(server.execute(text("SHOW GLOBAL STATUS LIKE 'Com_select'")).one()[1])


def _records(hub: Hub, result: str) -> int:
    with urllib.request.urlopen(f"http://127.0.0.1:{hub.ports['http']}/metrics", timeout=5) as answer:
        page = answer.read().decode()
    found = re.search(rf'^iothub_redis_records_total{{result="{result}"}} (\d+)$', page, re.MULTILINE)
    assert found is not None
    return int(found[1])
