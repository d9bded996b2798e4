"""Admin requests between hubs: every linked hub is asked, each answers for itself, and who does not answer is named in time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest
from structlog.testing import capture_logs
from twisted.internet.defer import Deferred

from iothub.base.errors import ConfigError, IotHubError, NotFoundError, UnavailableError
from iothub.peers import commands
from iothub.peers.commands import UNDER_WAY, NoPeers, PeerAnswer
from iothub.peers.frames import FrameType, pack
from iothub.peers.ports import PeerId
from iothub.records.admin_commands import Json, Reply, Request, Verb
from tests.support.in_process.linked_pair import LinkedHub

DELETE = Request(Verb.RETAIN_DELETE, "acme", {"filter": "a/#"})


class Work:
    """What a hub does for a request: it answers when the test says so."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.replies: list[Reply] = []
        self.results: list[Deferred[Json]] = []

    async def answer(self, request: Request, reply: Reply) -> Json:
        self.requests.append(request)
        self.replies.append(reply)
        self.results.append(Deferred())
        return await self.results[-1]

    def report(self, *rows: Json) -> list[Any]:
        """Send rows of the last request; return what came of it."""
        outcome: list[Any] = []
        Deferred.fromCoroutine(cast("Any", self.replies[-1].rows(rows))).addBoth(outcome.append)
        return outcome


class Asker:
    """Who asks at a hub; `has_left`: it listens no more; `is_slow`: it has not taken the last rows yet."""

    def __init__(self) -> None:
        self.heard: list[Json] = []
        self.calls = 0
        self.has_left = False
        self.slow: Deferred[None] | None = None
        self.answers: list[PeerAnswer] | None = None
        self.error: Any = None

    async def rows(self, rows: Sequence[Json]) -> None:
        if self.has_left:
            raise UnavailableError("the caller has closed the connection")
        self.calls += 1
        self.heard += rows
        if self.slow is not None:
            await self.slow


class Pair:
    """Hub 1, which is asked, and hubs 2 and 3, which do the work."""

    def __init__(self) -> None:
        self.works = {node: Work() for node in (1, 2, 3)}
        self.hubs = {
            node: LinkedHub(node, dict.fromkeys((Verb.RETAIN_DELETE, Verb.BAN_LIST), work.answer))
            for node, work in self.works.items()
        }
        self.first, self.second, self.third = self.hubs.values()
        self.first.link(self.second, self.third)

    def ask(self, request: Request = DELETE, asker: Asker | None = None, silence_s: float = 8.0) -> Asker:
        asked = Asker() if asker is None else asker

        def note(outcome: Any) -> None:
            if isinstance(outcome, list):
                asked.answers = outcome
            else:
                asked.error = outcome.value

        Deferred.fromCoroutine(self.first.commands.ask_all(request, asked, silence_s)).addBoth(note)
        return asked

    def answer(self, node: int, result: Json) -> None:
        self.works[node].results[-1].callback(result)


@pytest.fixture
def pair() -> Pair:
    return Pair()


def answers_of(asker: Asker) -> dict[int, object]:
    """Each hub's result, or the text of its error."""
    assert asker.answers is not None, asker.error
    return {answer.node: answer.result if answer.error is None else str(answer.error) for answer in asker.answers}


def test_every_linked_hub_answers_for_itself(pair: Pair) -> None:
    """And asks nobody on its behalf."""
    asker = pair.ask()
    assert asker.answers is None
    pair.answer(2, {"messages": 3})
    pair.answer(3, {"messages": 0})

    assert answers_of(asker) == {2: {"messages": 3}, 3: {"messages": 0}}
    assert pair.works[2].requests == pair.works[3].requests == [DELETE]
    assert pair.works[1].requests == []
    assert pair.second.links.sent == [FrameType.ANSWER]
    assert pair.first.reactor.getDelayedCalls() == []


@pytest.mark.parametrize(
    ("verb", "levels"), [(Verb.BAN_LIST, {"debug"}), (Verb.RETAIN_DELETE, {"info"}), ("of.a.later.version", {"info"})]
)
def test_what_changes_nothing_has_a_line_for_debugging_only(pair: Pair, verb: str, levels: set[str]) -> None:
    with capture_logs() as lines:
        asker = pair.ask(Request(verb, "acme", {}))
        for node in (2, 3):
            if pair.works[node].results:  # else it does not know the verb
                pair.answer(node, {})

    assert asker.answers is not None
    assert {line["log_level"] for line in lines if line["event"] == "admin request of another hub"} == levels


def test_hub_without_links_asks_nobody() -> None:
    answers: list[Any] = []
    Deferred.fromCoroutine(NoPeers().ask_all(DELETE, Asker(), 8.0)).addBoth(answers.append)

    assert answers == [[]]


def test_rows_of_all_hubs_come_while_they_work(pair: Pair) -> None:
    """None at all is a sign of life, which whoever asks waits for, too."""
    asker = pair.ask()
    pair.works[2].report({"node": 2, "done": 1})
    pair.works[3].report({"node": 3, "done": 5}, {"node": 3, "done": 6})
    pair.works[2].report()

    assert [row["node"] for row in asker.heard] == [2, 3, 3]
    assert asker.calls == 3
    assert asker.answers is None


def test_rows_wait_for_an_asker_that_is_slow(pair: Pair) -> None:
    """One call at a time, in their order, and all of them before the answers."""
    asker = Asker()
    asker.slow = Deferred()
    pair.ask(asker=asker)
    for number in range(3):
        pair.works[2].report({"number": number})
    pair.answer(2, {})
    pair.answer(3, {})
    assert ([row["number"] for row in asker.heard], asker.answers) == ([0], None)

    slow, asker.slow = asker.slow, None
    slow.callback(None)

    assert [row["number"] for row in asker.heard] == [0, 1, 2]
    assert answers_of(asker) == {2: {}, 3: {}}


@pytest.mark.parametrize(
    "error", [NotFoundError("no such"), ConfigError("wrong"), UnavailableError("the store is down")]
)
def test_refusal_keeps_its_class_and_text(pair: Pair, error: IotHubError) -> None:
    error.details = ("line 7",)
    asker = pair.ask()
    pair.works[2].results[-1].errback(error)
    pair.answer(3, {})

    assert asker.answers is not None
    refusal = asker.answers[0].error
    assert (type(refusal), str(refusal), refusal and refusal.details) == (type(error), str(error), ("line 7",))


def test_defect_of_the_other_hub_is_an_error_without_its_text(pair: Pair) -> None:
    asker = pair.ask()
    pair.works[2].results[-1].errback(KeyError("secret"))
    pair.answer(3, {})

    assert answers_of(asker)[2] == "internal error; see its log"


def test_hub_of_another_version_refuses_what_it_does_not_know(pair: Pair) -> None:
    asker = pair.ask(Request("of a later version", "acme", {}))

    assert "it is of another version" in str(answers_of(asker)[2])


def test_hub_that_is_silent_is_waited_for_no_longer(pair: Pair) -> None:
    """It gets CANCEL; what it says later is passed over."""
    asker = pair.ask(silence_s=2.0)
    pair.answer(3, {"messages": 1})
    pair.first.reactor.advance(1.9)
    assert asker.answers is None
    pair.first.reactor.advance(0.1)

    assert answers_of(asker) == {2: "no answer within 2 s", 3: {"messages": 1}}
    assert pair.first.links.sent.count(FrameType.CANCEL) == 1
    (outcome,) = pair.works[2].report({"late": True})
    assert isinstance(outcome.value, UnavailableError)
    pair.answer(2, {"messages": 5})
    assert pair.second.links.sent == []


def test_hub_that_reports_is_waited_for_however_long_it_takes(pair: Pair) -> None:
    asker = pair.ask(silence_s=2.0)
    pair.answer(3, {})
    for number in range(10):
        pair.first.reactor.advance(1.9)
        pair.works[2].report({"done": number})
    pair.answer(2, {"messages": 9})

    assert answers_of(asker) == {2: {"messages": 9}, 3: {}}


def test_link_that_comes_back_in_time_loses_nothing(pair: Pair) -> None:
    """The request waits in the link; nothing is asked twice."""
    pair.first.links.is_down = True
    asker = pair.ask()
    pair.first.reactor.advance(5.0)
    pair.first.links.is_down = False
    pair.first.links.deliver()
    pair.answer(2, {"messages": 1})
    pair.answer(3, {"messages": 2})

    assert answers_of(asker) == {2: {"messages": 1}, 3: {"messages": 2}}
    assert pair.works[2].requests == [DELETE]


def test_hub_that_dies_while_it_answers_has_not_answered(pair: Pair) -> None:
    asker = pair.ask()
    pair.works[2].report({"done": 1})
    pair.first.lose(pair.second)
    pair.answer(3, {"messages": 2})

    assert answers_of(asker) == {2: "it is gone", 3: {"messages": 2}}
    assert asker.heard == [{"done": 1}]
    assert pair.first.reactor.getDelayedCalls() == []


def test_hub_that_dies_while_it_asks_is_answered_no_more(pair: Pair) -> None:
    """What it has asked for is done all the same."""
    pair.ask()
    pair.second.lose(pair.first)
    (outcome,) = pair.works[2].report({"done": 1})
    pair.answer(2, {"messages": 3})

    assert isinstance(outcome.value, UnavailableError)
    assert pair.second.links.sent == []


def test_asker_that_leaves_is_not_waited_for_at_the_other_hubs(pair: Pair) -> None:
    asker = pair.ask()
    asker.has_left = True
    pair.works[2].report({"done": 1})

    assert isinstance(asker.error, UnavailableError)
    assert pair.first.links.sent.count(FrameType.CANCEL) == 2
    assert pair.first.reactor.getDelayedCalls() == []
    pair.answer(2, {})
    assert pair.second.links.sent == [FrameType.ROWS]


def test_link_that_is_full_or_gone_carries_no_request(pair: Pair) -> None:
    pair.first.links.full.add(pair.second.peer)
    pair.first.links.up = lambda: (pair.second.peer, PeerId(9, 1))  # type: ignore[method-assign]

    asker = pair.ask()

    assert answers_of(asker) == {2: "its link is full", 9: "hub 9 is gone"}
    assert pair.first.links.sent == []


def test_requests_under_way_are_bounded(pair: Pair) -> None:
    """By those of one hub, until their work is done, also when nobody waits for it any more."""
    askers = [pair.ask(silence_s=2.0) for _ in range(UNDER_WAY)]
    pair.first.reactor.advance(2.0)
    assert all(asker.answers is not None for asker in askers)

    refused = pair.ask()
    pair.works[2].results[0].callback({})
    pair.works[3].results[0].callback({})
    taken = pair.ask()
    pair.answer(2, {"messages": 1})
    pair.answer(3, {"messages": 1})

    assert "requests of this hub are under way there" in str(answers_of(refused)[2])
    assert answers_of(taken) == {2: {"messages": 1}, 3: {"messages": 1}}


def test_answers_are_bounded_where_they_are_made(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "ANSWER_BYTES", 1000)
    asker = pair.ask()
    pair.works[2].report({"text": "x" * 600})
    (outcome,) = pair.works[2].report({"text": "x" * 600})
    pair.works[2].results[-1].errback(outcome.value)
    pair.answer(3, {"text": "x" * 1001})

    assert answers_of(asker) == {2: "the answer has more than 1000 bytes", 3: "the answer has more than 1000 bytes"}
    assert len(asker.heard) == 1


def test_answers_are_bounded_where_they_are_heard(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hub that does not keep to it hears that nobody listens."""
    asker = pair.ask()
    pair.answer(3, {})
    monkeypatch.setattr(commands, "ANSWER_BYTES", 1000)
    rows = pack({"id": 1, "rows": [{"text": "x" * 600}]})
    pair.first.commands.frame(pair.second.peer, FrameType.ROWS, rows)
    pair.first.commands.frame(pair.second.peer, FrameType.ROWS, rows)

    assert answers_of(asker)[2] == "its answer has more than 1000 bytes"
    assert pair.first.links.sent[-1] is FrameType.CANCEL


@pytest.mark.parametrize(
    ("frame_type", "body"),
    [
        (FrameType.REQUEST, b"\xc1"),
        (FrameType.REQUEST, pack({"verb": "ban.list", "tenant": "", "argument": {}})),
        (FrameType.REQUEST, pack({"id": True, "verb": "ban.list", "tenant": "", "argument": {}})),
        (FrameType.REQUEST, pack({"id": 1, "verb": 7, "tenant": "", "argument": {}})),
        (FrameType.REQUEST, pack({"id": 1, "verb": "ban.list", "tenant": "", "argument": []})),
        (FrameType.REQUEST, pack({"id": 1, "verb": "ban.list", "tenant": "", "argument": {"a": b"bytes"}})),
        (FrameType.REQUEST, pack({"id": 7, "verb": "ban.list", "tenant": "", "argument": {}})),
        (FrameType.ROWS, pack({"id": 1})),
        (FrameType.ROWS, pack({"id": 1, "rows": {}})),
        (FrameType.ROWS, pack({"id": 1, "rows": [1]})),
        (FrameType.ANSWER, pack({"id": 1})),
        (FrameType.ANSWER, pack({"id": 1, "result": [], "rows": []})),
        (FrameType.ANSWER, pack({"id": 1, "rows": []})),
        (FrameType.CANCEL, pack({"id": "1"})),
    ],
)
def test_what_is_no_request_and_no_answer_closes_the_link(pair: Pair, frame_type: FrameType, body: bytes) -> None:
    """Hub 1 has asked (number 1) and is asked (number 7) by hub 2."""
    pair.ask()
    Deferred.fromCoroutine(pair.second.commands.ask_all(DELETE, Asker(), 8.0))
    pair.second.links.send(
        pair.first.peer, FrameType.REQUEST, pack({"id": 7, "verb": "ban.list", "tenant": "acme", "argument": {}})
    )

    pair.second.links.send(pair.first.peer, frame_type, body)

    assert len(pair.second.links.closed) == 1


def test_answer_to_nothing_is_passed_over(pair: Pair) -> None:
    for frame_type, fields in (
        (FrameType.ANSWER, {"result": {}}),
        (FrameType.ROWS, {"rows": []}),
        (FrameType.CANCEL, {}),
    ):
        pair.second.links.send(pair.first.peer, frame_type, pack({"id": 99, **fields}))

    assert pair.second.links.closed == []


def test_answer_of_a_hub_that_was_not_asked_counts_for_nothing(pair: Pair) -> None:
    """Numbers are those of one link."""
    asker = pair.ask()
    pair.third.links.send(pair.first.peer, FrameType.ANSWER, pack({"id": 1, "result": {"messages": 99}}))
    pair.answer(2, {"messages": 1})
    pair.answer(3, {"messages": 2})

    assert answers_of(asker) == {2: {"messages": 1}, 3: {"messages": 2}}
