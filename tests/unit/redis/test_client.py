"""The reactor's face: gathered, bounded, by-passed when Redis is silent, and never a call without an outcome."""

from __future__ import annotations

from collections.abc import Sequence

from twisted.internet.defer import Deferred

from iothub_services.redis.calls import Call, RedisRefusedError, RedisUnavailableError, Reply, command
from iothub_services.redis.client import RedisClient
from tests.unit.redis.conftest import MakeClient, World


def ask(client: RedisClient, *calls: Call) -> list[Sequence[Reply]]:
    """Make calls; the outcomes come into the list that is returned."""
    answers: list[Sequence[Reply]] = []
    waiting = client.run_many(calls)
    assert isinstance(waiting, Deferred)
    waiting.addCallback(answers.append)
    return answers


def test_calls_of_a_moment_share_a_pipeline(world: World, client: RedisClient) -> None:
    """One hop to the thread, whoever asks."""
    answers = [ask(client, command("SET", f"k{number}", number)) for number in range(5)]

    world.advance(0.001)
    world.answer()

    assert answers == [[[b"OK"]]] * 5
    assert [len(pipeline) for pipeline in world.server.pipelines] == [1, 5]
    assert world.metered == [(5, 0, False)]


def test_company_enough_is_not_waited_for(world: World, client: RedisClient) -> None:
    """A storm does not wait a millisecond for more."""
    answers = [ask(client, command("PING")) for _ in range(32)]

    world.answer()

    assert answers == [[[b"PONG"]]] * 32


def test_what_comes_during_a_pipeline_goes_next(world: World, client: RedisClient) -> None:
    first = ask(client, command("INCR", "a"))
    world.advance(0.001)
    second = [ask(client, command("INCR", "a")) for _ in range(3)]
    world.advance(0.001)

    world.answer()
    world.advance(0.001)
    world.answer()

    assert first == [[1]]
    assert second == [[[2]], [[3]], [[4]]]
    assert [len(pipeline) for pipeline in world.server.pipelines] == [1, 1, 3]


def test_calls_of_one_caller_are_not_torn_apart(world: World, make_client: MakeClient) -> None:
    """MULTI and EXEC need each other, whatever the bound of a pipeline is."""
    client = make_client(batch=2)
    client.start()
    world.answer()
    first = ask(client, command("PING"))
    both = ask(client, command("MULTI"), command("INCR", "a"), command("EXEC"))
    later = ask(client, command("PING"))

    world.advance(0.001)
    world.answer()
    world.advance(0.001)
    world.answer()

    assert (first, both, later) == ([[b"PONG"]], [[b"OK", b"QUEUED", [1]]], [[b"PONG"]])
    assert [len(pipeline) for pipeline in world.server.pipelines] == [1, 4, 1]


def test_single_call_returns_or_raises(world: World, client: RedisClient) -> None:
    """As coroutines have it."""
    outcomes: list[object] = []
    for call in (client.run("SET", "a", "x"), client.run("INCR", "a")):
        Deferred.fromCoroutine(call).addErrback(lambda failure: failure.value).addCallback(outcomes.append)

    world.advance(0.001)
    world.answer()

    assert outcomes[0] == b"OK"
    assert isinstance(outcomes[1], RedisRefusedError)


def test_silent_server_costs_one_time_out_and_is_by_passed(world: World, client: RedisClient) -> None:
    """Whoever asked first waits; the rest does not, and only a PING finds out when it is over."""
    world.server.is_silent = True
    first = ask(client, command("GET", "a"))
    world.advance(0.001)
    meanwhile = ask(client, command("GET", "a"))
    world.answer()
    at_once = ask(client, command("GET", "a"))

    for answers in (first, meanwhile, at_once):
        assert isinstance(answers[0][0], RedisUnavailableError)
    assert client.is_degraded
    assert [state != "" for state in world.states] == [True]
    assert world.by_passed == 2
    world.advance(0.05)
    world.answer()  # the first probe is not answered either
    assert client.trouble
    world.server.is_silent = False
    world.advance(0.1)
    world.answer()
    assert client.trouble == ""
    assert world.states[-1] == ""
    assert len(world.states) == 2


def test_server_that_is_away_at_the_start_is_known_to_be(world: World, make_client: MakeClient) -> None:
    """Nobody has to ask first."""
    world.server.is_down = True
    client = make_client()

    client.start()
    world.answer()

    assert client.trouble == "Redis at here:1: Connection refused"


def test_server_that_goes_is_noticed_while_nobody_asks(world: World, client: RedisClient) -> None:
    """A PING a second: the alarm does not wait for the next CONNECT."""
    world.server.is_down = True
    world.server.cut()

    world.advance(1.0)
    world.answer()

    assert client.is_degraded


def test_server_that_still_loads_stays_by_passed(world: World, make_client: MakeClient) -> None:
    """It answers, and nothing can be had of it."""
    client = make_client()
    world.server.refusals = ["LOADING Redis is loading the dataset in memory"]

    client.start()
    world.answer()

    assert client.is_degraded


def test_too_many_waiting_calls_are_refused_at_once(world: World, make_client: MakeClient) -> None:
    """By number and by bytes; one that is alone may be of any size."""
    client = make_client(waiting=3, waiting_bytes=1000)
    client.start()
    world.answer()
    taken = [ask(client, command("PING")) for _ in range(3)]

    too_many = ask(client, command("PING"))

    assert isinstance(too_many[0][0], RedisUnavailableError)
    assert "too many calls wait" in str(too_many[0][0])
    world.advance(0.001)
    world.answer()
    assert taken == [[[b"PONG"]]] * 3
    assert (client.waiting, client.waiting_bytes) == (0, 0)
    big = ask(client, command("SET", "a", b"x" * 2000))
    too_big = ask(client, command("PING"))
    world.advance(0.001)
    world.answer()
    assert big == [[b"OK"]]
    assert isinstance(too_big[0][0], RedisUnavailableError)


def test_caller_that_has_gone_is_not_answered(world: World, client: RedisClient) -> None:
    """Its call may be done all the same."""
    waiting = client.run_many([command("INCR", "a")])
    assert isinstance(waiting, Deferred)
    waiting.addErrback(lambda _: None)
    waiting.cancel()

    world.advance(0.001)
    world.answer()

    assert client.waiting == 0


def test_closing_answers_whoever_waits(world: World, client: RedisClient) -> None:
    """And whoever comes later."""
    gathered = ask(client, command("PING"))

    client.close()
    late = ask(client, command("PING"))

    for answers in (gathered, late):
        assert "the hub is stopping" in str(answers[0][0])
    assert world.server.wires[-1].is_closed


def test_calls_before_the_start_wait_for_it(world: World, make_client: MakeClient) -> None:
    client = make_client()
    early = ask(client, command("PING"))

    client.start()
    world.answer()
    world.advance(0.001)
    world.answer()

    assert early == [[b"PONG"]]
