"""Accounts go from SQLite to MariaDB to PostgreSQL and back: the same rows, and ids that go on above; a copy survives kill -9."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import ExitStack, closing
from itertools import pairwise
from pathlib import Path

from sqlalchemy import func, select

from iothub.base.clock import SystemClock
from iothub.doctor import sql
from iothub.doctor.findings import State
from iothub_tenants.accounts import devices, groups, installations, tenants
from iothub_tenants.accounts.copying import How, copy_accounts
from iothub_tenants.accounts.database import open_engine, sqlite_url
from iothub_tenants.accounts.initial import init_store
from iothub_tenants.accounts.store import AccountStore
from iothub_tenants.accounts.tables import device
from ops.services.services import Services
from tests.support.servers.sql_servers import SERVERS, own_database

PEPPER = b"p" * 32
DEVICES = 450  # several batches
TENANTS = 2  # one of them is gone
DIE = """
import os, sys
from iothub_tenants.accounts.copying import copy_accounts
copy_accounts(sys.argv[1], sys.argv[2], lambda done, of: os.kill(os.getpid(), 9) if done > 300 else None)
"""


def _fill(url: str) -> None:
    with closing(init_store(url, pepper=PEPPER)) as store:
        tenants.create(store, "acme", display_name="Ärger & Söhne \N{ROCKET}")
        groups.create(store, "acme", "sensors")
        with store.write() as writer:
            owner = tenants.find(writer.connection, "acme")
            writer.connection.execute(device.insert(), [_device(owner.id, number) for number in range(DEVICES)])
        devices.create(store, "acme", "last")
        devices.delete(store, "acme", "last")
        tenants.create(store, "gone")
        tenants.finish_deletion(store, tenants.delete(store, "gone").tenant_id)


def _device(tenant_id: int, number: int) -> dict[str, object]:
    values = {"tenant_id": tenant_id, "name": f"Dev-{number}", "credential_kind": "none", "credential": ""}
    return {**values, "is_enabled": bool(number % 2), "created_ms": 1 << 40, "changed_ms": (1 << 40) + number}


def _killed(source: str, target: str) -> None:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", DIE, source, target], env=environment, timeout=120, check=False)
    assert done.returncode == -9


def test_accounts_go_round_all_databases(mariadb: Services, postgresql: Services, tmp_path: Path) -> None:
    """Each copy is cut short once; the last one equals the first, and knows every id that was ever issued."""
    assert mariadb is postgresql
    first, last = sqlite_url(tmp_path / "first.db"), sqlite_url(tmp_path / "last.db")
    _fill(first)
    with ExitStack() as stack:
        stops = [first, *(stack.enter_context(own_database(mariadb, server)) for server in SERVERS), last]
        for source, target in pairwise(stops):
            _killed(source, target)
            copied = copy_accounts(source, target)
            assert copied.how is How.RESUMED
            assert copied.rows["device"] == DEVICES
            with closing(AccountStore(target, pepper=PEPPER)) as copy:
                assert tenants.highest_id(copy) == TENANTS

    with closing(AccountStore(first)) as begun, closing(AccountStore(last, pepper=PEPPER)) as ended:
        assert installations.own(begun) == installations.own(ended)
        assert devices.list_all(begun, "acme") == devices.list_all(ended, "acme")
        devices.create(ended, "acme", "next")
        with ended.read() as connection:
            newest = connection.execute(select(func.max(device.c.id))).scalar_one()
        assert newest == DEVICES + 2  # the last one was deleted


def test_doctor_looks_at_a_server(mariadb: Services, postgresql: Services) -> None:
    """Version, connections and time; nothing speaks against ours."""
    assert mariadb is postgresql
    for server in SERVERS:
        with own_database(mariadb, server) as url:
            engine = open_engine(url)
            (finding,) = sql.check(engine, SystemClock().wall(), 8)
            engine.dispose()
        assert finding.state in (State.OK, State.WARN)  # a busy machine is slow
        assert finding.text.startswith(server)
        assert finding.seconds is not None
