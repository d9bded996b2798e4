"""Batches over a connection that comes and goes: nothing twice, everything answered, scripts known again."""

from __future__ import annotations

import pytest

from iothub_services.redis.calls import RedisRefusedError, RedisUnavailableError, Reply, Script, command, script_call
from iothub_services.redis.link import LinkLostError, is_lost
from iothub_services.redis.wire import refusal
from tests.support.servers.fake_redis import FakeRedis, FakeWire

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


def test_scripts_that_come_first_are_one_transaction() -> None:
    """Redis syncs once for all of them. A command behind them that it refuses must not keep them from being done."""
    server = FakeRedis()
    link = server.link()
    calls = [script_call(APPEND, ["a"], "x"), script_call(COUNT, ["a"]), command("INCR", "a")]

    outcomes = [link.exchange(calls, is_joining=True) for _ in range(2)]

    assert [found[:2] for found in outcomes] == [[1, 1], [2, 2]]
    assert all(isinstance(found[2], RedisRefusedError) for found in outcomes)
    assert [call[0] for call in server.pipelines[1]] == ["MULTI", "EVALSHA", "EVALSHA", "EXEC", "INCR"]


def test_script_that_fails_in_a_transaction_fails_alone() -> None:
    server = FakeRedis()
    link = server.link()
    link.exchange([command("SET", "text", "x")])

    outcomes = link.exchange([script_call(APPEND, ["text"], "x"), script_call(APPEND, ["a"], "x")], is_joining=True)

    assert isinstance(outcomes[0], RedisRefusedError)
    assert outcomes[1] == 1


def test_one_script_needs_no_transaction() -> None:
    server = FakeRedis()
    link = server.link()

    assert link.exchange([script_call(APPEND, ["a"], "x"), command("LLEN", "a")], is_joining=True) == [1, 1]
    assert "MULTI" not in [call[0] for call in server.pipelines[-1]]


def test_scripts_that_were_flushed_are_sent_again_from_a_transaction() -> None:
    server = FakeRedis()
    link = server.link()
    calls = [script_call(APPEND, ["a"], "x"), script_call(APPEND, ["a"], "y")]
    link.exchange(calls, is_joining=True)
    link.exchange([command("SCRIPT", "FLUSH")])

    assert link.exchange(calls, is_joining=True) == [3, 4]


def test_transaction_that_was_not_begun_has_the_answer_of_each_call() -> None:
    """Redis runs somebody's long script when MULTI comes, and is through with it before the calls behind it."""
    server = FakeRedis()
    link = server.link()
    calls = [script_call(APPEND, ["a"], "x"), script_call(APPEND, ["a"], "y")]
    link.exchange(calls)
    read = server.wires[0].read
    server.wires[0].read = (
        lambda count: [  # type: ignore[method-assign]
            refusal("BUSY Redis is busy running a script"),
            *read(count)[1:-1],
            refusal("ERR EXEC without MULTI"),
        ]
    )
    server.wires[0].send = lambda sent: send([sent[1], *sent[1:-1], sent[-2]])  # type: ignore[method-assign]
    send = FakeWire.send.__get__(server.wires[0])

    assert link.exchange(calls, is_joining=True) == [4, 5]


def test_what_a_full_server_does_not_queue_is_done_call_by_call() -> None:
    """Above `maxmemory` Redis queues no call, also none that would free memory: acknowledgements go on, and make room."""
    server = FakeRedis()
    link = server.link()
    calls = [script_call(APPEND, ["a"], "x"), script_call(APPEND, ["a"], "y"), command("LLEN", "a")]
    link.exchange(calls)
    server.is_full = True

    assert link.exchange(calls, is_joining=True) == [3, 4, 2]


def test_transaction_whose_end_is_not_heard_may_be_written() -> None:
    """Each of its calls was queued, which says nothing of what became of it."""
    server = FakeRedis()
    link = server.link()
    calls = [script_call(APPEND, ["a"], "x"), script_call(APPEND, ["a"], "y")]
    link.exchange(calls)
    read = server.wires[0].read
    answers: list[Reply] = []

    def until_the_end(count: int) -> list[Reply]:
        if answers:
            raise RedisUnavailableError("Connection closed by server.", is_written=True)
        answers.extend(read(count)[:-1])
        return list(answers)

    server.wires[0].read = until_the_end  # type: ignore[method-assign]
    outcomes = link.exchange(calls, is_joining=True)

    assert answers == [b"OK", b"QUEUED", b"QUEUED"]
    assert is_lost(outcomes)
    assert all(isinstance(each, LinkLostError) and each.is_written for each in outcomes)
    assert len(outcomes) == len(calls)


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
