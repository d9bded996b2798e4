"""The face for threads: one pipeline, and no time-out twice."""

from __future__ import annotations

import pytest

from iothub_services.redis.blocking import LONGEST_PAUSE_S, Pauses
from iothub_services.redis.calls import RedisRefusedError, RedisUnavailableError, Script, command, script_call
from tests.support.servers.fake_redis import FakeRedis

DOUBLE = Script("return ARGV[1] * 2")


def test_calls_answer_or_raise() -> None:
    redis = FakeRedis().blocking()

    assert redis.run("SET", "a", "x") == b"OK"
    assert redis.run_many([script_call(DOUBLE, [], 21)]) == [42]
    assert redis.run_many([command("GET", "a"), command("GET", "b")]) == [b"x", None]
    assert redis.write_many([script_call(DOUBLE, [], 4), script_call(DOUBLE, [], 5)]) == [8, 10]
    with pytest.raises(RedisRefusedError):
        redis.run("INCR", "a")


def test_after_a_time_out_calls_fail_at_once_until_the_pause_is_over() -> None:
    """A stall of five seconds must not cost each caller a time-out."""
    server = FakeRedis()
    redis = server.blocking()
    redis.run("SET", "a", "x")
    server.is_silent = True
    with pytest.raises(RedisUnavailableError):
        redis.run("GET", "a")
    before = server.clock.monotonic()

    with pytest.raises(RedisUnavailableError, match="timed out") as caught:
        redis.run("GET", "a")

    assert server.clock.monotonic() == before
    assert not caught.value.is_written
    server.is_silent = False
    server.clock.advance(LONGEST_PAUSE_S)
    assert redis.run("GET", "a") == b"x"


def test_closed_connection_is_made_again_when_it_is_needed() -> None:
    server = FakeRedis()
    redis = server.blocking()
    redis.run("PING")

    redis.close()

    assert server.wires[0].is_closed
    assert redis.run("PING") == b"PONG"


def test_pauses_grow_to_a_bound_and_begin_anew() -> None:
    """Recovery is noticed within a second or so."""
    pauses = Pauses(lambda: 1.0)

    grown = [pauses.next_s() for _ in range(8)]
    pauses.reset()

    assert grown[:3] == [0.05, 0.1, 0.2]
    assert grown[-1] == LONGEST_PAUSE_S
    assert pauses.next_s() == 0.05
