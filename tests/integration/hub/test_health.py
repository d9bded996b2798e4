"""Health, alarms and metrics of a running hub, as an operator and a scraper see them."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable

from prometheus_client.parser import text_string_to_metric_families

from tests.support.clients.mqtt_clients import Clients
from tests.support.hubs.hub import Hub
from tests.support.waiting import PATIENCE_S, until


def get(hub: Hub, path: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", hub.ports["http"], timeout=PATIENCE_S)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def read(page: bytes) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    families = text_string_to_metric_families(page.decode())
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }


def value(hub: Hub, path: str, name: str, **labels: str) -> float:
    return read(get(hub, path)[1])[name, frozenset(labels.items())]


def test_numbers_follow_what_clients_do(make_hub: Callable[..., Hub], clients: Callable[..., Clients]) -> None:
    hub = make_hub(auth__failure_reply_ms="0")
    hub.start()
    join = clients(hub)
    sleeper = join(5, "sleeper", keep=True)
    sleeper.subscribe(("#", 1))
    sleeper.disconnect()
    writer = join(4, device="dev2")
    writer.publish("a", b"x" * 50, 1, retain=True)
    join.ask(5, password="wrong")
    join.open_connection()

    until(lambda: value(hub, "/metrics", "iothub_connections_pre_auth") == 1, "the silent one is counted")
    page = read(get(hub, "/metrics")[1])
    assert page["iothub_connections", frozenset({("listener", "tcp")})] == 2
    assert page["iothub_sessions", frozenset({("state", "offline")})] == 1
    assert page["iothub_session_events_total", frozenset({("event", "created")})] == 1
    assert page["iothub_authentications_total", frozenset({("result", "accepted")})] == 2
    assert page["iothub_authentications_total", frozenset({("result", "wrong_secret")})] == 1
    assert page["iothub_queued_messages", frozenset()] == 1
    assert page["iothub_retained_messages", frozenset()] == 1
    assert page["iothub_store_commits_total", frozenset({("store", "queues")})] >= 1
    assert page["iothub_store_commit_duration_seconds_count", frozenset({("store", "events")})] >= 1
    assert page["iothub_disk_free_bytes", frozenset()] > 0
    tenant = read(get(hub, "/metrics/tenants?tenant=acme")[1])
    acme = ("tenant", "acme")
    assert tenant["iothub_tenant_queued_messages", frozenset({acme})] == 1
    assert tenant["iothub_tenant_authentications_total", frozenset({acme, ("result", "refused")})] == 1
    assert tenant["iothub_tenant_quota_used", frozenset({acme, ("quota", "connections")})] == 1


def test_alarm_about_the_disk_refuses_nobody(make_hub: Callable[..., Hub], clients: Callable[..., Clients]) -> None:
    """Space is short, not gone."""
    hub = make_hub(alarms__disk_free="1000GiB")
    hub.start()

    assert "disk_low" in [alarm["name"] for alarm in json.loads(get(hub, "/status")[1])["alarms"]]
    assert value(hub, "/metrics", "iothub_alarms_active", severity="warning") >= 1
    clients(hub)(5).ping()
