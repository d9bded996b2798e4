"""`iothub trace` beside a real hub: what a client does is recorded packet by packet, no secret is, and a trace ends by itself."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from tests.support.clients.mqtt_clients import Clients
from tests.support.hubs.hub import Hub
from tests.support.waiting import until

MakeHub = Callable[..., Hub]
MakeClients = Callable[..., Clients]


def started(hub: Hub, *words: str) -> str:
    return str(json.loads(hub.run("-o", "json", "trace", "start", "acme", *words).stdout)["name"])


def lines(hub: Hub, trace: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in hub.run("trace", "download", "acme", trace).stdout.splitlines()]


def packets(hub: Hub, trace: str) -> list[tuple[str, str]]:
    return [(line["direction"], line["packet"]) for line in lines(hub, trace) if line["event"] == "packet"]


def test_traces_of_client_and_topic(make_hub: MakeHub, clients: MakeClients) -> None:
    hub = make_hub()
    hub.start()
    join = clients(hub)
    of_client, of_topic = started(hub, "--client", "c"), started(hub, "--topic", "a/#", "--payload", "3")

    client = join(5, "c", username="acme/dev1")
    client.subscribe(("a/b", 1))
    client.publish("a/b", b"payload", qos=1)
    client.take()
    client.disconnect()
    until(lambda: lines(hub, of_client)[-1]["event"] == "closed", "the end of the connection")

    assert packets(hub, of_client) == [
        ("in", "CONNECT"),
        ("out", "CONNACK"),
        ("in", "SUBSCRIBE"),
        ("out", "SUBACK"),
        ("in", "PUBLISH"),
        ("out", "PUBLISH"),
        ("out", "PUBACK"),
        ("in", "PUBACK"),
        ("in", "DISCONNECT"),
    ]
    found = lines(hub, of_client)
    assert "secret" not in json.dumps(found)
    assert next(line for line in found if line.get("packet") == "SUBSCRIBE")["filters"] == ["a/b"]
    assert all("payload" not in line for line in found)
    of_topics = {line["event"]: line for line in lines(hub, of_topic)}
    assert (of_topics["published"]["payload"], of_topics["published"]["receivers"]) == ("pay", 1)
    assert of_topics["delivered"]["client"] == "c"
    assert [row["state"] for row in hub.rows("trace", "list", "acme")] == ["active", "active"]
    assert (hub.data_dir / "traces" / f"{of_client}.jsonl").stat().st_mode & 0o777 == 0o600

    hub.run("trace", "stop", "acme", of_client)
    until(lambda: lines(hub, of_client)[-1]["event"] == "trace_ended", "the end of the trace")
    hub.run("trace", "delete", "acme", of_client, "--yes")
    assert [row["name"] for row in hub.rows("trace", "list", "acme")] == [of_topic]


def test_refused_client_is_traced_with_the_rule(make_hub: MakeHub, clients: MakeClients) -> None:
    hub = make_hub()
    hub.start()
    trace = started(hub, "--device", "dev1", "--for", "1s")

    clients(hub).ask(5, username="acme/dev1", password="wrong")
    until(lambda: lines(hub, trace)[-1]["event"] == "trace_ended", "the end of the trace")

    said = lines(hub, trace)
    assert [line["rule"] for line in said if line["event"] == "refused"] == ["wrong_secret"]
    assert "wrong" not in json.dumps([line for line in said if line["event"] != "refused"])
    assert said[-1]["reason"] == "time"
