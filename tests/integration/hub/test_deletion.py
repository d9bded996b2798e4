"""A tenant is deleted while the hub runs and its devices are there: nothing of it is left, and its successor inherits nothing."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from iothub_services.quota.slots import SlotFile
from iothub_tenants.accounts import devices
from iothub_tenants.accounts.database import sqlite_url
from iothub_tenants.accounts.store import AccountStore
from tests.support.clients import property_names as names
from tests.support.clients.mqtt_clients import Clients
from tests.support.hubs.hub import Hub
from tests.support.hubs.stored_queues import put_down
from tests.support.waiting import until

STORES = ("accounts.db", "queues.db", "retained.db", "state.db", "usage.db")
# Logs of what was done; they are trimmed by age and name the tenant by its number, which is never used again.
HISTORIES = {"audit", "change_log"}


def fill(hub: Hub, join: Clients) -> None:
    """Live and offline sessions, queues, retained messages, a Will, a shared group, an exchange that is not over, spent quotas."""
    will = ("wills/dev1", b"gone", 1, True)
    offline = join(5, "offline", keep=True)
    offline.subscribe(("rooms/#", 1), ("$share/g/rooms/+", 1))
    offline.disconnect()
    live = join(5, "live", keep=True, will=will, will_props=[(names.WILL_DELAY, 60)])
    live.subscribe(("rooms/#", 2))
    transient = join(4, "transient", device="dev2")
    transient.subscribe(("#", 0))
    transient.publish("rooms/1", b"kept", 1, retain=True)
    for number in range(1, 20):
        transient.publish("rooms/2", b"x" * 100, 1, number)
    transient.send(transient.publish_bytes("rooms/3", b"half", 2, 77))  # PUBREL never comes
    for _ in range(12):
        join.ask(4, password="wrong")


def rows_of(path: Path, tenant_id: int) -> dict[str, int]:
    """Rows of a file that carry the tenant's number, by table."""
    found = {}
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for table in tables:
            columns = {row[1] for row in connection.execute(f"PRAGMA table_info({table})")}
            for column in columns & {"tenant", "tenant_id"}:
                count = connection.execute(f"SELECT count(*) FROM {table} WHERE {column} = ?", (tenant_id,)).fetchone()
                found[table] = int(count[0])
    return {table: count for table, count in found.items() if count and table not in HISTORIES}


def rows_in(path: Path, *tables: str) -> int:
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
        return sum(int(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]) for table in tables)


def leftovers(hub: Hub, tenant_id: int) -> dict[str, dict[str, int]]:
    found = {name: rows_of(hub.data_dir / name, tenant_id) for name in STORES}
    return {name: tables for name, tables in found.items() if tables}


def test_deleted_tenant_leaves_nothing_in_any_store(
    make_hub: Callable[..., Hub], clients: Callable[[Hub], Clients]
) -> None:
    """Rows, files, topics and metrics: the next tenant of that name must find nothing."""
    hub = make_hub(auth__failure_reply_ms="0")
    hub.run("tenant", "update", "acme", "--plan", "standard")
    hub.start()
    join = clients(hub)
    fill(hub, join)
    tenant_id = int(str(hub.rows("tenant", "list")[0]["id"]))
    put_down(hub)
    until(lambda: {"queues.db", "retained.db", "state.db"} <= set(leftovers(hub, tenant_id)), "everything is stored")

    hub.run("tenant", "delete", "acme", "--confirm", "acme")

    assert leftovers(hub, tenant_id) == {}
    until(lambda: not rows_in(hub.data_dir / "queues.db", "ref", "body", "inbound", "released"), "the queues are swept")
    assert hub.stop() == 0
    with closing(SlotFile(hub.data_dir / "usage.map")) as slots:
        assert [record for record in slots.records() if record.tenant_id == tenant_id] == []
    assert leftovers(hub, tenant_id) == {}


def test_successor_inherits_nothing(make_hub: Callable[..., Hub], clients: Callable[[Hub], Clients]) -> None:
    """Not the sessions, messages, wills and spent quotas, and not the bans for its predecessor's wrong passwords."""
    hub = make_hub(auth__failure_reply_ms="0")
    hub.run("tenant", "update", "acme", "--plan", "standard")
    hub.run("quota", "set", "acme", "publish_messages=1000/1d")
    hub.start()
    join = clients(hub)
    fill(hub, join)
    witness = join(5, "witness", device="dev2")
    hub.run("tenant", "delete", "acme", "--confirm", "acme")
    witness.refused(0x87, 0x98)
    hub.tenant("acme", "dev1", "dev2", plan="standard")

    client = join(5, "offline", keep=True)
    assert not client.connack.session_present
    client.subscribe(("#", 1))
    join(5, "live", device="dev2", keep=True).publish("rooms/9", b"new", 1)

    assert client.payloads() == [b"new"]
    client.nothing()
    assert {row["name"] for row in hub.rows("session", "list", "acme")} == {"offline", "live"}
    assert hub.rows("retain", "list", "acme") == []


def test_imported_tenant_inherits_nothing(make_hub: Callable[..., Hub], clients: Callable[[Hub], Clients]) -> None:
    """Accounts alone come back by an import; the sessions of the deleted tenant do not."""
    hub = make_hub(auth__failure_reply_ms="0")
    hub.start()
    join = clients(hub)
    join(5, "sleeper", keep=True).subscribe(("#", 1))
    join(5, device="dev2").publish("a", b"old", 1)
    exported = hub.run("tenant", "export", "acme").stdout
    hub.run("tenant", "delete", "acme", "--confirm", "acme")

    hub.run("tenant", "import", "-", secret=exported)

    sleeper = join(5, "sleeper", keep=True)
    assert not sleeper.connack.session_present
    sleeper.nothing()


def test_successor_of_a_deleted_device_inherits_nothing(
    make_hub: Callable[..., Hub], clients: Callable[[Hub], Clients]
) -> None:
    """Connections closed, sessions, queues and waiting wills gone, when the command returns; the other device does not notice."""
    hub = make_hub(auth__failure_reply_ms="0")
    hub.start()
    join = clients(hub)
    witness = join(5, "witness", device="dev2", keep=True)
    witness.subscribe(("wills/#", 1))
    sleeper = join(5, "sleeper", keep=True)
    sleeper.subscribe(("a", 1))
    sleeper.disconnect()
    live = join(5, "live", keep=True, will=("wills/dev1", b"gone", 1, False))
    live.subscribe(("a", 2))
    assert witness.publish("a", b"old", 1).code == 0
    live.take()

    hub.run("device", "delete", "acme", "dev1", "--yes")

    live.refused(0x87)
    assert [row["name"] for row in hub.rows("session", "list", "acme")] == ["witness"]
    put_down(hub)
    assert rows_in(hub.data_dir / "queues.db", "queue") == 1
    hub.device("acme", "dev1")
    for client_id in ("sleeper", "live"):
        client = join(5, client_id, keep=True)
        assert not client.connack.session_present
        client.nothing()
    witness.nothing()


def test_deletions_that_could_not_be_noted_are_applied_and_spare_successors(
    make_hub: Callable[..., Hub], clients: Callable[[Hub], Clients]
) -> None:
    """`applied-changes.json` cannot be written: each start applies every deletion again, and those of the meantime."""
    hub = make_hub(auth__failure_reply_ms="0")
    (hub.data_dir / "applied-changes.json").unlink(missing_ok=True)
    (hub.data_dir / "applied-changes.json").mkdir()
    hub.start()
    join = clients(hub)
    join(5, "sleeper", keep=True).subscribe(("a", 1))
    hub.run("device", "delete", "acme", "dev1", "--yes")
    hub.device("acme", "dev1")
    successor = join(5, "sleeper", keep=True)
    assert not successor.connack.session_present
    successor.subscribe(("b", 1))
    join(5, "other", device="dev2", keep=True).publish("b", b"new", 1)
    hub.kill()
    with closing(AccountStore(sqlite_url(hub.data_dir / "accounts.db"))) as store:
        devices.delete(store, "acme", "dev2")
        devices.create(store, "acme", "dev2", password="secret")

    hub.start()

    again = join(5, "sleeper", keep=True)
    assert again.connack.session_present
    assert again.payloads() == [b"new"]
    assert not join(5, "other", device="dev2", keep=True).connack.session_present


def test_device_deleted_while_the_hub_was_killed_is_not_resumed(
    make_hub: Callable[..., Hub], clients: Callable[[Hub], Clients]
) -> None:
    """By whoever has the accounts, and made anew before the next start: the hub reads of it before it opens a port."""
    hub = make_hub(auth__failure_reply_ms="0")
    hub.start()
    join = clients(hub)
    join(5, "sleeper", keep=True).subscribe(("a", 1))
    join(5, "other", device="dev2", keep=True).publish("a", b"old", 1)
    hub.kill()
    with closing(AccountStore(sqlite_url(hub.data_dir / "accounts.db"))) as store:
        devices.delete(store, "acme", "dev1")
        devices.create(store, "acme", "dev1", password="secret")

    hub.start()

    assert not join(5, "sleeper", keep=True).connack.session_present
    assert join(5, "other", device="dev2", keep=True).connack.session_present
    hub.kill()
    hub.start()
    assert join(5, "sleeper", keep=True).connack.session_present
