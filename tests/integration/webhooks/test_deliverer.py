"""Deliveries to a real HTTP server (`iothub_services.webhooks.sending`): signed, repeated, bounded, and never lost without a name."""

from __future__ import annotations

import ipaddress
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from iothub.base.clock import SystemClock
from iothub_services.sqlite.database import open_database
from iothub_services.webhooks import deliverer as module
from iothub_services.webhooks import signing, turns
from iothub_services.webhooks.deliverer import Deliverer, retry_after_s
from iothub_services.webhooks.lookups import AT_ONCE
from iothub_services.webhooks.outbox import SCHEMA, Outbox, Waiting
from iothub_services.webhooks.port import Delivery, Result, Target
from tests.support.waiting import PATIENCE_S, until
from tests.support.webhook_receiver import Receiver, receiving

SECRET = b"s" * 32
LOOPBACK = (ipaddress.ip_network("127.0.0.0/8"),)
DELIVERY = Delivery(networks=LOOPBACK, timeout_s=60.0, give_up_s=3600.0, queue_bytes=100_000)
BODY = b'{"v":1,"event":"client/connected"}'


class Scenario:
    """A deliverer over a file, and what it has reported."""

    def __init__(self, path: Path, delivery: Delivery = DELIVERY) -> None:
        self.path = path
        self.lost: list[tuple[str, Result, int]] = []
        self.clock = SystemClock()
        self.deliverer = Deliverer(
            lambda: Outbox(open_database(path, SCHEMA, self.clock, lambda _name, _text: None)),
            self.clock,
            delivery,
            "iothub/test",
            lambda target, result, count: self.lost.append((target.label, result, count)),
        )

    def put(self, target: Target, number: int, body: bytes = BODY, age_s: float = 0.0) -> None:
        made_ms = int((self.clock.wall() - age_s) * 1000)
        self.deliverer.put(target, Waiting(0, target.id, f"0-{number}", "client/connected", made_ms, body))

    def count(self, result: Result) -> int:
        return self.deliverer.counts[result.value]

    def until(self, result: Result, count: int) -> None:
        until(lambda: self.count(result) >= count, f"{count} x {result.value}")


def target_of(url: str, number: int = 1) -> Target:
    return Target(number, 7, f"acme/w{number}", url, frozenset({"*"}), (SECRET,))


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as made:
        yield made


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Scenario]]:
    monkeypatch.setattr(module, "FIRST_RETRY_S", 0.02)
    monkeypatch.setattr(module, "LONGEST_RETRY_S", 0.1)
    made: list[Scenario] = []

    def start(**changes: object) -> Scenario:
        made.append(Scenario(tmp_path / "webhooks.db", replace(DELIVERY, **changes)))  # type: ignore[arg-type]
        return made[-1]

    yield start
    for scenario in made:
        scenario.deliverer.close(10)


def test_an_event_is_posted_with_its_signature(make: Callable[..., Scenario], receiver: Receiver) -> None:
    scenario, target = make(), target_of(receiver.url)
    scenario.deliverer.set_targets([target])
    scenario.put(target, 1)
    scenario.until(Result.DELIVERED, 1)

    (request,) = receiver.received
    assert (request.path, request.body) == ("/hook?a=b", BODY)
    assert request.headers["webhook-id"] == "0-1"
    assert (request.headers["content-type"], request.headers["user-agent"]) == ("application/json", "iothub/test")
    assert request.is_signed_with(signing.shown(SECRET))
    until(lambda: scenario.deliverer.waiting_bytes() == 0, "nothing waits")
    (attempt,) = scenario.deliverer.take_attempts()
    assert (attempt.event_id, attempt.result, attempt.status) == ("0-1", "delivered", 200)
    assert scenario.deliverer.take_attempts() == []


def test_a_receiver_that_fails_gets_the_event_again(make: Callable[..., Scenario], receiver: Receiver) -> None:
    scenario, target = make(), target_of(receiver.url)
    receiver.status = 503
    scenario.deliverer.set_targets([target])
    scenario.put(target, 1)
    scenario.until(Result.FAILED, 2)
    receiver.status = 204
    scenario.until(Result.DELIVERED, 1)

    assert {request.headers["webhook-id"] for request in receiver.received} == {"0-1"}
    assert scenario.lost == []
    assert any("status 503" in attempt.detail for attempt in scenario.deliverer.take_attempts())


def test_a_redirect_is_not_followed(make: Callable[..., Scenario], receiver: Receiver) -> None:
    with receiving() as other:
        scenario, target = make(), target_of(receiver.url)
        receiver.status, receiver.headers = 307, {"Location": other.url}
        scenario.deliverer.set_targets([target])
        scenario.put(target, 1)
        scenario.until(Result.FAILED, 1)

        assert other.received == []
    assert "not followed" in scenario.deliverer.take_attempts()[0].detail


def test_a_private_address_is_not_connected_to(make: Callable[..., Scenario], receiver: Receiver) -> None:
    """Nor by a name that leads there."""
    scenario = make(networks=())
    targets = [target_of(receiver.url), target_of(receiver.url.replace("127.0.0.1", "localhost"), 2)]
    scenario.deliverer.set_targets(targets)
    for target in targets:
        scenario.put(target, 1)
    until(
        lambda: (
            {a.webhook_id for a in scenario.deliverer.take_attempts()} == {1, 2} or scenario.count(Result.FAILED) > 3
        ),
        "both failed",
    )

    assert receiver.received == []
    assert scenario.count(Result.DELIVERED) == 0


def test_a_receiver_that_is_silent_is_given_up_and_delays_no_other(
    make: Callable[..., Scenario], receiver: Receiver
) -> None:
    with receiving() as good:
        scenario = make(timeout_s=0.3)
        silent, quick = target_of(receiver.url), target_of(good.url, 2)
        receiver.silence.clear()
        scenario.deliverer.set_targets([silent, quick])
        scenario.put(silent, 1)
        until(lambda: bool(receiver.received), "the silent one has a request")
        scenario.put(quick, 2)
        scenario.until(Result.DELIVERED, 1)
        scenario.until(Result.FAILED, 1)

    details = [attempt.detail for attempt in scenario.deliverer.take_attempts() if attempt.webhook_id == 1]
    assert details[0] == "no answer in 0.3 s"


def test_an_event_that_is_always_refused_delays_no_other(make: Callable[..., Scenario], receiver: Receiver) -> None:
    scenario, target = make(), target_of(receiver.url)
    receiver.status = 400
    scenario.deliverer.set_targets([target])
    for number in range(8):
        scenario.put(target, number)
    until(lambda: len({each.headers["webhook-id"] for each in list(receiver.received)}) == 8, "each was tried")


def test_what_was_tried_for_too_long_is_dropped_by_name(make: Callable[..., Scenario], receiver: Receiver) -> None:
    scenario, target = make(), target_of(receiver.url)
    receiver.status = 500
    scenario.deliverer.set_targets([target])
    scenario.put(target, 1, age_s=7200)
    scenario.until(Result.GIVEN_UP, 1)

    assert scenario.lost == [("acme/w1", Result.GIVEN_UP, 1)]
    until(lambda: scenario.deliverer.waiting_bytes() == 0, "nothing waits")


def test_a_full_queue_drops_what_comes_by_name(make: Callable[..., Scenario], receiver: Receiver) -> None:
    """What is in it is delivered later; another webhook has its own."""
    scenario, target, other = make(queue_bytes=5_000), target_of(receiver.url), target_of(receiver.url, 2)
    receiver.status = 500
    scenario.deliverer.set_targets([target, other])
    for number in range(10):
        scenario.put(target, number, b"x" * 800)
        until(
            lambda done=number: (
                sum(map(scenario.deliverer.counts.__getitem__, ("failed", "queue_full"))) > 0 or done == 0
            ),
            "it goes on",
        )
    scenario.until(Result.QUEUE_FULL, 5)
    assert {(label, result) for label, result, _ in scenario.lost} == {("acme/w1", Result.QUEUE_FULL)}

    scenario.put(other, 99)
    receiver.status = 200
    scenario.until(Result.DELIVERED, 6)
    assert scenario.count(Result.QUEUE_FULL) == 5


def test_what_waits_is_delivered_after_a_restart(make: Callable[..., Scenario], receiver: Receiver) -> None:
    first, target = make(), target_of(receiver.url)
    receiver.status = 500
    first.deliverer.set_targets([target])
    for number in range(3):
        first.put(target, number)
    first.deliverer.close(10)
    receiver.status = 200
    receiver.received.clear()

    second = make()
    second.deliverer.set_targets([target])
    second.until(Result.DELIVERED, 3)

    assert {request.headers["webhook-id"] for request in receiver.received} == {"0-0", "0-1", "0-2"}


def test_what_waits_for_a_deleted_webhook_is_dropped_and_counted(
    make: Callable[..., Scenario], receiver: Receiver
) -> None:
    scenario, target = make(), target_of(receiver.url)
    receiver.status = 500
    scenario.deliverer.set_targets([target])
    scenario.put(target, 1)
    scenario.until(Result.FAILED, 1)
    scenario.deliverer.set_targets([])
    scenario.until(Result.DELETED, 1)

    until(lambda: scenario.deliverer.waiting_bytes() == 0, "nothing waits")
    assert scenario.lost == []


@pytest.mark.parametrize("answer", [b"no http\r\n\r\n", b"", b"HTTP/1.1 200 OK\r\nx: " + b"y" * 40_000])
def test_a_receiver_that_speaks_no_http_is_an_attempt_that_failed(make: Callable[..., Scenario], answer: bytes) -> None:
    import socket
    import threading

    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            with listening.accept()[0] as connection:
                connection.recv(65_536)
                connection.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        scenario, target = make(), target_of(f"http://127.0.0.1:{listening.getsockname()[1]}/")
        scenario.deliverer.set_targets([target])
        scenario.put(target, 1)
        scenario.until(Result.FAILED, 1)
        thread.join(PATIENCE_S)

    assert scenario.deliverer.take_attempts()[0].status == 0


def test_retries_come_later_each_time_and_are_spread() -> None:
    assert [retry_after_s(failures, 1.0) for failures in (1, 2, 3, 4)] == [1.0, 2.0, 4.0, 8.0]
    assert retry_after_s(3, 0.0) == 2.0
    assert retry_after_s(10_000, 1.0) == 600.0


def test_names_that_hang_delay_no_other_tenant_and_no_end(
    make: Callable[..., Scenario], receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered, real = threading.Event(), socket.getaddrinfo

    def look_up(host: str, *arguments: Any, **options: Any) -> Any:
        if host == "slow.example":
            answered.wait(PATIENCE_S)
        return real("127.0.0.1" if host == "slow.example" else host, *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    scenario = make()
    slow = [target_of("http://slow.example/", number) for number in range(2, 22)]
    other = replace(target_of(receiver.url), tenant_id=8)
    scenario.deliverer.set_targets([*slow, other])
    for target in slow:
        for number in range(4):
            scenario.put(target, target.id * 10 + number)
    until(lambda: threading.active_count() > AT_ONCE, "look-ups hang")
    scenario.put(other, 1)
    scenario.until(Result.DELIVERED, 1)

    assert sum(thread.name == "webhook-lookup" for thread in threading.enumerate()) <= AT_ONCE
    scenario.deliverer.close(5)
    assert not any(thread.name == "webhooks" for thread in threading.enumerate())
    answered.set()


def test_all_queues_together_are_bounded(make: Callable[..., Scenario], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_QUEUES", 1)
    scenario = make()
    targets = [target_of("http://127.0.0.1:1/", number) for number in (1, 2)]
    scenario.deliverer.set_targets(targets)
    for target in targets:
        scenario.put(target, target.id, b"x" * 60_000)
        until(lambda: scenario.count(Result.FAILED) > 0, "the first one is stored")

    scenario.until(Result.QUEUE_FULL, 1)
    assert scenario.lost == [("acme/w2", Result.QUEUE_FULL, 1)]


def test_receivers_that_hang_delay_no_other_tenant(
    make: Callable[..., Scenario], receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many tenants they are of: all connections are theirs for a moment."""
    monkeypatch.setattr(turns, "CONNECTIONS", 2)
    monkeypatch.setattr(turns, "SOON_S", 0.02)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        scenario = make(timeout_s=60.0)
        hanging = [
            replace(target_of(f"http://127.0.0.1:{silent.getsockname()[1]}/", number), tenant_id=number)
            for number in range(2, 12)
        ]
        other = target_of(receiver.url)
        scenario.deliverer.set_targets([*hanging, other])
        for target in hanging:
            scenario.put(target, target.id)
        connection, _ = silent.accept()
        with connection:
            scenario.put(other, 1)
            scenario.until(Result.DELIVERED, 1)
            assert scenario.count(Result.FAILED) == 0  # while they hang: a socket that closes is a failure


def test_receivers_that_hang_are_bounded(make: Callable[..., Scenario], monkeypatch: pytest.MonkeyPatch) -> None:
    """Where all places of the slow are taken, a request ends sooner, and says so."""
    monkeypatch.setattr(turns, "SOON_S", 0.02)
    monkeypatch.setattr(turns, "SLOW", 1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        scenario = make(timeout_s=60.0)
        targets = [target_of(f"http://127.0.0.1:{silent.getsockname()[1]}/", number) for number in (1, 2)]
        scenario.deliverer.set_targets(targets)
        for target in targets:
            scenario.put(target, target.id)
        scenario.until(Result.FAILED, 1)
        attempts = scenario.deliverer.take_attempts()  # the other one fails when its receiver closes

    assert {attempt.detail for attempt in attempts} == {
        "no answer in 0.02 s, and too many other receivers do not answer either"
    }
