"""A running hub (`iothub.hub.composition.webhooks`), a webhook made by the command, and a real receiver."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.clients.clients import Listener
from tests.support.clients.mqtt_clients import Clients
from tests.support.hubs.hub import Hub
from tests.support.waiting import until
from tests.support.webhook_receiver import Receiver, receiving


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as made:
        yield made


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    made = Hub(tmp_path / "hub")
    made.init()
    allow_loopback(made)
    made.tenant("acme", "dev1")
    made.tenant("beta", "dev1")
    yield made
    made.close()


@pytest.fixture
def clients() -> Iterator[Callable[[Hub], Clients]]:
    made: list[Clients] = []

    def of(hub: Hub) -> Clients:
        made.append(Clients(Listener(hub, "tcp")))
        return made[-1]

    yield of
    for each in made:
        each.leave()


def allow_loopback(hub: Hub, *, is_allowed: bool = True) -> None:
    """Set it in the configuration file, which the command reads, too."""
    line = '[webhooks]\nallow_networks = ["127.0.0.0/8"]\n'
    file = hub.data_dir / "iothub.toml"
    text = file.read_text()
    file.write_text(f"{text}\n{line}" if is_allowed else text.replace(line, ""))


def create(hub: Hub, *words: str) -> str:
    """Create a webhook; return its secret."""
    return str(json.loads(hub.run("-o", "json", "webhook", "create", *words).stdout)["secret"])


def test_events_reach_whom_they_are_for(hub: Hub, receiver: Receiver, clients: Callable[[Hub], Clients]) -> None:
    """A tenant's webhook gets its own tenant's events alone, the platform's those of all; refused logins without any client, too."""
    with receiving() as platform:
        secret = create(hub, "pager", receiver.url, "--tenant", "acme", "--event", "client/*")
        create(hub, "ops", platform.url)
        hub.start()
        join = clients(hub)

        def both_see_a_refusal() -> bool:
            join.ask(5, "c1", password="wrong")
            return bool(receiver.of("client/connect_failed") and platform.of("client/connect_failed"))

        def begun() -> set[object]:
            return {request.event["tenant"] for request in platform.of("client/connected")}

        until(both_see_a_refusal, "the webhooks are in use")
        join(5, "theirs", tenant="beta").disconnect()
        join(5, "mine").disconnect()
        until(lambda: bool(receiver.of("client/disconnected")), "the end of mine")
        until(lambda: len(platform.of("client/disconnected")) == 2, "both ends")
        until(lambda: begun() == {"acme", "beta"}, "both beginnings, which may come later")

    assert {request.event["tenant"] for request in receiver.received} == {"acme"}
    assert all(request.is_signed_with(secret) for request in receiver.received)

    def attempts() -> list[dict[str, object]]:
        shown = hub.run("-o", "json", "webhook", "show", "pager", "--tenant", "acme").stdout
        return list(json.loads(shown)["attempts"])

    until(lambda: any(attempt["result"] == "delivered" for attempt in attempts()), "the log has it")
    assert secret not in json.dumps(attempts()) + hub.log


def test_a_webhook_is_tested_without_a_hub(hub: Hub, receiver: Receiver) -> None:
    """By the settings of the data directory: loopback is refused, and was allowed when the webhook was made, until it is allowed again."""
    secret = create(hub, "pager", receiver.url, "--tenant", "acme")
    allow_loopback(hub, is_allowed=False)
    refused = hub.run("webhook", "test", "pager", "--tenant", "acme", check=False)
    assert (refused.returncode, receiver.received) == (7, [])
    assert "not public" in refused.stderr

    hub.environment = {"IOTHUB_WEBHOOKS__ALLOW_NETWORKS": "127.0.0.0/8"}
    hub.run("webhook", "test", "pager", "--tenant", "acme")

    (request,) = receiver.received
    assert request.event["event"] == "webhook/test"
    assert request.is_signed_with(secret)
