"""Single flight."""

from __future__ import annotations

import pytest
from twisted.internet.defer import Deferred

from iothub_services.auth.single_flight import SingleFlight


def start(
    single_flight: SingleFlight[str, int], key: str, asked: list[Deferred[int]]
) -> tuple[Deferred[int], list[object]]:
    async def ask() -> int:
        asked.append(Deferred())
        return await asked[-1]

    async def wait() -> int:
        return await single_flight.join(key, ask)

    results: list[object] = []
    waiting = Deferred.fromCoroutine(wait())
    waiting.addBoth(results.append)
    return waiting, results


def test_callers_of_one_key_share_one_answer() -> None:
    """One question to the store however many ask."""
    single_flight: SingleFlight[str, int] = SingleFlight()
    asked: list[Deferred[int]] = []
    results = [start(single_flight, "a", asked)[1] for _ in range(3)]
    other = start(single_flight, "b", asked)[1]

    assert len(asked) == 2
    assert "a" in single_flight
    asked[0].callback(5)

    assert results == [[5], [5], [5]]
    assert other == []
    assert len(single_flight) == 1


def test_an_error_is_shared_and_the_next_caller_asks_again() -> None:
    """A failure is not remembered."""
    single_flight: SingleFlight[str, int] = SingleFlight()
    asked: list[Deferred[int]] = []
    results = [start(single_flight, "a", asked)[1] for _ in range(2)]

    asked[0].errback(ValueError("down"))

    for result in results:
        with pytest.raises(ValueError, match="down"):
            result[0].raiseException()  # type: ignore[attr-defined]
    start(single_flight, "a", asked)
    assert len(asked) == 2


def test_a_caller_that_gives_up_does_not_end_the_call() -> None:
    """The first one's connection may close while others wait."""
    single_flight: SingleFlight[str, int] = SingleFlight()
    asked: list[Deferred[int]] = []
    first, first_result = start(single_flight, "a", asked)
    _, second_result = start(single_flight, "a", asked)

    first.cancel()
    asked[0].callback(7)

    assert second_result == [7]
    assert len(first_result) == 1
    assert len(single_flight) == 0
