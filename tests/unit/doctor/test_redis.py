"""What the doctor says of Redis, from what Redis says of itself."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from iothub.base.units import Endpoint
from iothub.config.sections import Redis
from iothub.doctor import redis
from iothub.doctor.findings import State
from iothub_services.redis.calls import ADVICE

GOOD = {
    "redis_version": "7.0.15",
    "used_memory_human": "12M",
    "aof_enabled": "1",
    "maxmemory": "1073741824",
    "maxmemory_human": "1.00G",
    "maxmemory_policy": "noeviction",
}


def states(**changed: str) -> dict[str, State]:
    facts = {**GOOD, **changed}
    return {each.name: each.state for each in (redis._answer(facts, 0.0005), *redis._remarks(facts))}


def test_server_as_it_should_be_is_ok() -> None:
    assert set(states().values()) == {State.OK}


@pytest.mark.parametrize(
    ("changed", "name"),
    [
        ({"redis_version": "5.0.3"}, "Redis"),
        ({"aof_enabled": "0"}, "Redis persistence"),
        ({"maxmemory": "0"}, "Redis memory"),
        ({"maxmemory_policy": "allkeys-lru"}, "Redis memory"),
    ],
    ids=["old", "forgets", "unbounded", "evicts"],
)
def test_what_speaks_against_it_is_a_warning(changed: dict[str, str], name: str) -> None:
    """It works; it needs attention."""
    found = states(**changed)

    assert [each for each, state in found.items() if state is State.WARN] == [name]


def test_slow_answer_is_a_warning() -> None:
    assert redis._answer(GOOD, 0.05).state is State.WARN


def test_user_that_may_not_ask_is_told_so() -> None:
    """INFO may be forbidden; the hub does not need it."""
    facts = redis._facts([None, 3, b"# Server\r\nrole\r\n"])

    assert redis._answer(facts, 0.001).state is State.OK
    assert list(redis._remarks(facts)) == []


def test_server_that_is_away_is_a_warning_with_advice() -> None:
    """A hub starts without it."""
    settings = Redis(addresses=(Endpoint("127.0.0.1", 1),), timeout_s=0.2)

    (found,) = redis.checks(settings)[0].run()

    assert (found.state, found.name) == (State.WARN, "Redis")
    assert "127.0.0.1:1" in found.text


def test_server_of_the_ledger_that_is_away_is_a_failure() -> None:
    """A hub beside it refuses new connections beyond what it was granted."""
    settings = Redis(addresses=(Endpoint("127.0.0.1", 1),), timeout_s=0.2)

    (found,) = redis.checks(settings, has_ledger=True)[0].run()

    assert (found.state, "quota.ledger" in found.advice) == (State.FAIL, True)


def test_server_that_refuses_is_told_in_its_words() -> None:
    """With where to read on, and with what follows."""
    with refusing(b"-ERR DB index is out of range\r\n") as port:
        (found,) = redis.checks(Redis(addresses=(Endpoint("127.0.0.1", port),), timeout_s=2.0, database=3))[0].run()

    assert found.text == f"Redis at 127.0.0.1:{port}: DB index is out of range"
    assert found.advice == f"{ADVICE}; until then the hub works without this cache"


@contextmanager
def refusing(answer: bytes) -> Iterator[int]:
    """Something that answers the first question of a connection so."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(5)

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(answer)
                connection.recv(1000)

        thread = threading.Thread(target=serve)
        thread.start()
        yield server.getsockname()[1]
        thread.join()
