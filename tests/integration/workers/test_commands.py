"""Commands beside a hub with several workers: whichever answers, all of them are meant."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path

from tests.support.clients.clients import unique
from tests.support.clients.packets import DISCONNECT
from tests.support.hubs.workers import FIRST, SECOND, Workers
from tests.support.waiting import PATIENCE_S, until


def test_status_and_cluster_status_show_the_workers(workers: Workers) -> None:
    status = json.loads(workers.hub.run("status", "-o", "json").stdout)

    assert (status["state"], status["workers"], status["ready"]) == ("running", 2, True)
    assert workers.hub.process is not None
    assert status["pid"] == workers.hub.process.pid
    rows = workers.hub.rows("cluster", "status")
    assert [(row["node"], row["name"], row["state"]) for row in rows] == [(0, FIRST, "up"), (1, SECOND, "up")]


def test_sessions_and_queues_of_every_worker_are_listed(workers: Workers) -> None:
    names = {place: unique() for place in (FIRST, SECOND)}
    for place, name in names.items():
        reader = workers.join(place, client_id=name, keep=True)
        reader.subscribe((name, 1))
        reader.disconnect()
        workers.join(place, device="dev2").publish(name, b"1", 1, 1)

    sessions = {str(row["name"]) for row in workers.hub.rows("session", "list", "acme")}
    assert sessions >= set(names.values())
    for name in names.values():
        (queue,) = [row for row in workers.hub.rows("queue", "list", "acme") if row["name"] == name]
        assert queue["messages"] == 1
        workers.hub.run("session", "discard", "acme", name, "--yes")
    assert not {str(row["name"]) for row in workers.hub.rows("session", "list", "acme")} & set(names.values())


def test_client_of_any_worker_is_closed_when_its_device_is_disabled(workers: Workers) -> None:
    workers.hub.device("acme", "gone")
    clients = [workers.join(place, device="gone") for place in (FIRST, SECOND)]

    workers.hub.run("device", "disable", "acme", "gone")

    for client in clients:
        assert [packet.kind for packet in client.expect_closed()] == [DISCONNECT]


def test_tenant_is_deleted_beside_workers(workers: Workers) -> None:
    workers.hub.tenant("short", "dev1")
    clients = [workers.join(place, tenant="short", keep=True) for place in (FIRST, SECOND)]
    for client in clients:
        client.subscribe(("a", 1))

    done = workers.hub.run("tenant", "delete", "short", "--confirm", "short")

    assert "deleted tenant short" in done.stderr
    for client in clients:
        client.expect_closed()


def test_reload_reaches_every_worker(workers: Workers) -> None:
    config = workers.hub.data_dir / "iothub.toml"
    before = config.read_text()
    config.write_text(f'{before}\n[mqtt]\nmax_keepalive = "77s"\n')

    answer = workers.hub.run("config", "reload")
    held = [workers.join(place, keep_alive=1000).property(0x13, 0) for place in (FIRST, SECOND)]
    config.write_text(before)
    workers.hub.run("config", "reload")

    assert "applied 1 changed setting" in answer.stderr
    assert held == [77, 77]


def test_reload_of_a_wrong_configuration_is_refused_once(workers: Workers) -> None:
    config = workers.hub.data_dir / "iothub.toml"
    before = config.read_text()
    config.write_text(f"{before}\n[mqtt]\nmax_keepalive = 1\n")

    refused = workers.hub.run("config", "reload", check=False)
    config.write_text(before)
    workers.hub.run("config", "reload")

    assert refused.returncode == 2
    assert refused.stderr.count("mqtt.max_keepalive") == 1


def test_one_worker_is_drained_and_lets_clients_in_again(workers: Workers) -> None:
    leaving, staying = workers.join(SECOND), workers.join(FIRST)

    workers.hub.run("cluster", "drain", "1")

    assert [packet.code for packet in leaving.expect_closed()] == [0x9C]
    staying.ping()
    assert workers.states() == {FIRST: "up", SECOND: "draining"}
    assert {workers.worker_of(workers._join(5).client_id) for _ in range(8)} == {FIRST}
    workers.hub.run("cluster", "resume", "1")
    workers.join(SECOND).ping()


def test_drain_of_this_hub_is_of_all_its_workers(workers: Workers) -> None:
    """None of them sends its clients to another one, which drains too: 0x8B, no other hub, in place of 0x9C."""
    clients = [workers.join(FIRST), workers.join(SECOND)]

    drained = workers.hub.run("cluster", "drain", "--self", "-o", "json")

    codes = [packet.code for client in clients for packet in client.expect_closed()]
    assert (len(codes), codes[-1]) == (2, 0x8B)
    assert workers.states() == {FIRST: "draining", SECOND: "draining"}
    answer = json.loads(drained.stdout)
    assert (answer["node"], answer["name"], answer["clients"], answer["closed"]) == ([0, 1], [FIRST, SECOND], 0, 2)
    resumed = workers.hub.run("cluster", "resume", "--self")
    assert f"hubs {FIRST} (0) and {SECOND} (1) let clients in again" in resumed.stderr
    for place in (FIRST, SECOND):
        workers.join(place).ping()
    assert "were not draining" in workers.hub.run("cluster", "resume", "--self").stderr


def test_backup_beside_workers_is_whole(workers: Workers, tmp_path: Path) -> None:
    reader = workers.join(FIRST, client_id=unique(), keep=True)
    reader.subscribe(("backed/up", 1))

    workers.hub.run("backup", str(tmp_path / "backup"))

    names = {each["name"] for each in json.loads((tmp_path / "backup" / "backup.json").read_text())["files"]}
    assert names >= {"queues.db", "events.db", "accounts.db", "workers/1/member.json", "workers/2/member.json"}
    assert not [name for name in names if name.endswith((".sock", "hub.json", "lock"))]


def test_doctor_finds_nothing_wrong(workers: Workers) -> None:
    until(lambda: json.loads(workers.hub.run("status", "-o", "json").stdout)["quota"] == "shared", "the ledger")

    rows = {str(row["name"]): row for row in json.loads(workers.hub.run("doctor", "-o", "json", check=False).stdout)}

    assert rows["running hub"]["state"] == "ok"
    assert rows["quota of workers"]["text"] == "limits hold for 2 workers together"
    assert "schema version" in str(rows["workers/1/usage.db"]["text"])
    assert {"workers/2/usage.db", "usage.db"}.intersection(rows) == {"workers/2/usage.db"}
    assert [name for name, row in rows.items() if row["state"] == "fail"] == []


def test_http_answers_at_the_shared_port(workers: Workers) -> None:
    until(lambda: _ready(workers.hub.ports["http"]), "HTTP")
    for _ in range(8):
        assert _ready(workers.hub.ports["http"])


def _ready(port: int) -> bool:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=PATIENCE_S) as answer:
        return bool(json.load(answer)["ready"])


def test_client_of_any_worker_is_listed_shown_and_kicked(workers: Workers) -> None:
    """Whichever worker answers the command."""
    for number, place in enumerate((FIRST, SECOND)):
        client = workers.join(place, client_id=unique(), keep_alive=77)
        client.subscribe(("rooms/#", 1))

        (row,) = [row for row in workers.hub.rows("client", "list", "acme") if row["name"] == client.client_id]
        assert (row["node"], row["keep_alive_s"], row["subscriptions"]) == (number, 77, 1)
        shown = json.loads(workers.hub.run("-o", "json", "client", "show", "acme", client.client_id).stdout)
        assert [each["name"] for each in shown["subscriptions"]] == ["rooms/#"]
        workers.hub.run("client", "kick", "acme", client.client_id, "--yes")

        assert [(packet.kind, packet.code) for packet in client.expect_closed()] == [(DISCONNECT, 0x98)]
        gone = workers.hub.run("client", "show", "acme", client.client_id, check=False)
        assert gone.returncode == 3


def test_clients_of_both_workers_are_paged_in_one_order(workers: Workers) -> None:
    names = [f"paged-{number}" for number in range(4)]
    for number, name in enumerate(names):
        workers.join((FIRST, SECOND)[number % 2], client_id=name)

    first = workers.hub.rows("client", "list", "acme", "--after", "paged-", "--limit", "3")
    rest = workers.hub.rows("client", "list", "acme", "--after", "paged-2", "--limit", "3")

    assert [row["name"] for row in first] == names[:3]
    assert str(rest[0]["name"]) == names[3]
