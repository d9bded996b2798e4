"""Batches over a connection that comes and goes: nothing twice, everything answered, scripts known again."""

from __future__ import annotations

import pytest

from iothub_services.redis.calls import RedisRefusedError, RedisUnavailableError, Reply, Script, command, script_call
from iothub_services.redis.link import LinkLostError, is_lost
from tests.support.servers.fake_redis import FakeRedis

APPEND = Script("return redis.call('RPUSH', KEYS[1], ARGV[1])")
COUNT = Script("return redis.call('LLEN', KEYS[1])")


def test_batch_is_one_pipeline_with_answers_in_order() -> None:
    server = FakeRedis()

    outcomes = server.link().exchange([command("SET", "a", "1"), command("INCR", "a"), command("GET", "nobody")])

    assert outcomes == [b"OK", 2, None]
    assert len(server.pipelines) == 1


def test_empty_batch_does_not_connect() -> None:
    server = FakeRedis()

    assert server.link().exchange([]) == []
    assert server.connects == 0


def test_refused_call_leaves_the_others_alone() -> None:
    server = FakeRedis()

    outcomes = server.link().exchange([command("SET", "a", "x"), command("INCR", "a"), command("GET", "a")])

    assert isinstance(outcomes[1], RedisRefusedError)
    assert outcomes[2] == b"x"
    assert not is_lost(outcomes)


def test_call_that_cannot_be_sent_keeps_no_other_from_it() -> None:
    """A defect in one place must not fail whoever shares the pipeline."""
    outcomes = FakeRedis().link().exchange([command("SET", "a", "1"), command("GET", "\ud800"), command("GET", "a")])

    assert outcomes[0] == b"OK"
    assert isinstance(outcomes[1], RedisRefusedError)
    assert outcomes[2] == b"1"


def test_connection_that_was_closed_meanwhile_is_made_again() -> None:
    """A restart between two batches fails none of them."""
    server = FakeRedis()
    link = server.link()
    link.exchange([command("SET", "a", "1")])
    server.cut()

    assert link.exchange([command("GET", "a")]) == [b"1"]
    assert server.connects == 2


def test_nothing_is_written_when_nobody_could_be_reached() -> None:
    server = FakeRedis()
    server.is_down = True

    with pytest.raises(LinkLostError, match="Connection refused") as caught:
        server.link().exchange([command("INCR", "a")])

    assert caught.value.retryable
    assert not caught.value.is_written


def test_silence_may_have_written_and_ends_the_connection() -> None:
    """The answer that is late would be taken for the next one's."""
    server = FakeRedis()
    link = server.link()
    link.exchange([command("PING")])
    server.is_silent = True

    with pytest.raises(LinkLostError) as caught:
        link.exchange([command("INCR", "a")])
    server.is_silent = False

    assert caught.value.is_written
    assert server.wires[0].is_closed
    assert link.exchange([command("GET", "a")]) == [b"1"]  # it was done, once


def test_scripts_go_before_their_first_call_and_only_then() -> None:
    """One pipeline even the first time."""
    server = FakeRedis()
    link = server.link()
    calls = [script_call(APPEND, ["a"], "x"), script_call(COUNT, ["a"]), script_call(APPEND, ["a"], "y")]

    first = link.exchange(calls)
    second = link.exchange(calls)

    assert (first, second) == ([1, 1, 2], [3, 3, 4])
    assert [len(pipeline) for pipeline in server.pipelines] == [5, 3]


def test_script_that_was_flushed_is_sent_again() -> None:
    """SCRIPT FLUSH, which no connection notices."""
    server = FakeRedis()
    link = server.link()
    link.exchange([script_call(APPEND, ["a"], "x")])
    link.exchange([command("SCRIPT", "FLUSH")])

    assert link.exchange([script_call(APPEND, ["a"], "y"), command("LLEN", "a")]) == [2, 1]


def test_scripts_are_told_to_a_new_connection() -> None:
    """It may be another server."""
    server = FakeRedis()
    link = server.link()
    link.exchange([script_call(APPEND, ["a"], "x")])
    server.cut()

    link.exchange([script_call(APPEND, ["a"], "y")])

    assert server.pipelines[-1][0][:2] == ("SCRIPT", "LOAD")


def test_replica_is_left_for_the_master() -> None:
    """Fail-over: the server that was the master says READONLY."""
    server = FakeRedis()
    link = server.link()
    server.refusals = ["READONLY You can't write against a read only replica."]

    outcomes = link.exchange([command("INCR", "a")])

    assert isinstance(outcomes[0], RedisUnavailableError)
    assert not link.is_open


def test_batch_that_trickles_is_given_up() -> None:
    """Each answer just in time is no life sign for ever."""
    server = FakeRedis()
    link = server.link()
    link.exchange([command("PING")])
    wire = server.wires[0]
    read = wire.read

    def slow(_count: int) -> list[Reply]:
        server.clock.advance(0.9)
        return read(1)

    wire.read = slow  # type: ignore[method-assign]
    outcomes = link.exchange([command("PING")] * 10)

    assert outcomes[:3] == [b"PONG"] * 3
    assert is_lost(outcomes)
    assert wire.is_closed
