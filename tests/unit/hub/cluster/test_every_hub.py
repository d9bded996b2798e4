"""Requests for what each hub has in memory: answered here and by the others, added up, and nobody's silence passes for nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest
from twisted.internet.defer import Deferred

from iothub.base.errors import ConfigError, IotHubError, NotFoundError, UnavailableError
from iothub.hub.cluster.every_hub import AT_EVERY_HUB, EveryHub
from iothub.peers.commands import PeerAnswer
from iothub.records.admin_commands import Json, Reply, Request, Verb, answer_with

NONE = NotFoundError("not here")


class Hub:
    """Hub 1, beside hubs 2 (b) and 3 (c)."""

    def __init__(self) -> None:
        self.here: Json | IotHubError = {}
        self.names = {2: "b", 3: "c"}
        self.answers: list[PeerAnswer] = []
        self.asked: list[tuple[str, float]] = []
        self.every_hub = EveryHub(dict.fromkeys(AT_EVERY_HUB, self._answer), self, lambda: self.names)

    async def _answer(self, _request: Request, _reply: Reply) -> Json:
        if isinstance(self.here, IotHubError):
            raise self.here
        return self.here

    async def ask_all(self, request: Request, _reply: Reply, silence_s: float) -> list[PeerAnswer]:
        self.asked.append((request.verb, silence_s))
        return self.answers

    async def rows(self, _rows: Sequence[Json]) -> None:
        """Fulfil `Reply`."""

    def ask(self, verb: Verb = Verb.RETAIN_DELETE) -> Json:
        answers: list[Any] = []
        request = Request(verb, "acme", {})
        Deferred.fromCoroutine(answer_with(self.every_hub.verbs, request, self)).addBoth(answers.append)
        (answer,) = answers
        if hasattr(answer, "raiseException"):
            answer.raiseException()
        return cast("Json", answer)


@pytest.fixture
def hub() -> Hub:
    return Hub()


def test_hub_that_is_alone_asks_nobody(hub: Hub) -> None:
    hub.names = {}
    hub.here = {"messages": 2}

    assert hub.ask() == {"messages": 2}
    hub.here = NONE
    with pytest.raises(NotFoundError, match="not here"):
        hub.ask(Verb.BAN_LIFT)
    assert hub.asked == []


def test_answers_are_added_up(hub: Hub) -> None:
    """Numbers are; of texts there is one."""
    hub.here = {"left_out": 1, "reason": "10 failed logins"}
    hub.answers = [PeerAnswer(2, {"left_out": 2, "reason": "5 failed logins"}), PeerAnswer(3, {"left_out": 0})]

    assert hub.ask(Verb.BAN_LIST) == {"left_out": 3, "reason": "5 failed logins"}


def test_hubs_that_did_not_answer_are_named(hub: Hub) -> None:
    """Those without a link, and those that could not: what the others have is there all the same."""
    hub.here = {"messages": 2}
    hub.answers = [PeerAnswer(3, error=UnavailableError("no answer within 8 s"))]

    assert hub.ask() == {
        "messages": 2,
        "unanswered": [
            {"hub": "b (2)", "reason": "there is no link to it"},
            {"hub": "c (3)", "reason": "no answer within 8 s"},
        ],
    }


@pytest.mark.parametrize("verb", [Verb.BAN_LIFT, Verb.STREAM_SHOW, Verb.SESSION_DISCARD])
def test_what_one_hub_has_is_found(hub: Hub, verb: Verb) -> None:
    hub.here = NONE
    hub.answers = [PeerAnswer(2, error=NotFoundError("not there")), PeerAnswer(3, {"bans": 2})]

    assert hub.ask(verb) == {"bans": 2}


def test_what_no_hub_has_is_not_found(hub: Hub) -> None:
    hub.here = NONE
    hub.answers = [PeerAnswer(2, error=NotFoundError("not there")), PeerAnswer(3, error=NotFoundError("not there"))]

    with pytest.raises(NotFoundError, match="not here"):
        hub.ask(Verb.SESSION_DISCARD)


def test_what_was_not_found_may_be_at_a_hub_that_did_not_answer(hub: Hub) -> None:
    hub.here = NONE
    hub.answers = [PeerAnswer(3, error=NotFoundError("not there"))]

    with pytest.raises(UnavailableError, match=r"not here; but hub b \(2\) did not answer: there is no link to it"):
        hub.ask(Verb.SESSION_DISCARD)


def test_session_that_is_here_is_looked_for_nowhere_else(hub: Hub) -> None:
    assert hub.ask(Verb.SESSION_DISCARD) == {}
    assert hub.asked == []


def test_session_that_was_found_needs_no_other_hub(hub: Hub) -> None:
    hub.here = NONE
    hub.answers = [PeerAnswer(3, {})]

    assert hub.ask(Verb.SESSION_DISCARD) == {}


def test_request_that_this_hub_refuses_is_not_asked_on(hub: Hub) -> None:
    hub.here = ConfigError("topic filter 'a/#/b' is not valid")

    with pytest.raises(ConfigError, match="not valid"):
        hub.ask()
    assert hub.asked == []


def test_command_line_waits_for_longer_than_this_hub_does(hub: Hub) -> None:
    """Or it would hear of no hub that does not answer."""
    from iothub.cli import app, ban, stream

    for verb in (Verb.BAN_LIST, Verb.STREAM_SHOW):
        assert AT_EVERY_HUB[verb] < min(ban._ASK_TIMEOUT_S, stream._ASK_TIMEOUT_S)
    assert max(AT_EVERY_HUB.values()) < app.COMMAND_TIMEOUT_S
    hub.ask()
    assert hub.asked == [(Verb.RETAIN_DELETE, AT_EVERY_HUB[Verb.RETAIN_DELETE])]
