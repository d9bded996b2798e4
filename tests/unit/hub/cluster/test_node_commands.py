"""Drain and resume of the hub that is named: this one, or another one over a link."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock as Reactor
from twisted.internet.task import deferLater

from iothub.base.errors import ConfigError, ConflictError, NotFoundError, UnavailableError
from iothub.config.sections import Cluster, Config, Node
from iothub.hub.cluster.draining import CLIENTS_PER_S, Destination
from iothub.hub.cluster.node_commands import REPORT_S, Nodes, NodeState, OwnNode
from iothub.records.admin_commands import Json, Request, Verb, answer_with
from iothub_tenants.accounts.hubs import LEFT, NOBODY, SILENT, HubRow
from tests.support.in_process.linked_pair import LinkedHub


@dataclass
class FakeDraining:
    """Notes what it is told."""

    clients: int = 0
    closed: int = 0
    is_draining: bool = False
    is_ready: bool = True
    begun: list[tuple[float, Destination]] = field(default_factory=list)
    has_stopped: bool = False

    @property
    def is_done(self) -> bool:
        return self.is_draining and not self.clients

    def require_ready(self) -> None:
        if not self.is_ready:
            raise UnavailableError("the hub is starting or stopping")

    def begin(self, rate_per_s: float, destination: Destination) -> None:
        self.is_draining = True
        self.begun.append((rate_per_s, destination))

    def resume(self) -> bool:
        was, self.is_draining = self.is_draining, False
        return was

    def stop(self) -> None:
        self.has_stopped = True


class OneHub:
    """A hub, linked to those that the test says."""

    def __init__(self, node: int, name: str, clients_at: str = "") -> None:
        settings = Config(node=Node(number=node, name=name), cluster=Cluster(advertise_clients=clients_at))
        self.draining = FakeDraining()
        self.reactor = Reactor()
        self.rows_heard: list[Json] = []
        own = OwnNode(settings, cast("Any", self.draining), lambda seconds: deferLater(self.reactor, seconds))
        self.linked = LinkedHub(node, own.verbs)
        self.known: list[tuple[HubRow, bool]] = []
        self.evicted: list[HubRow] = []
        self.nodes = Nodes(own, self.linked.commands, lambda: self.known, self.evict)

    def know(self, node: int, name: str, *, is_living: bool = True, gone_why: str = "") -> None:
        gone_by = 1 if gone_why else NOBODY
        self.known.append((HubRow(node, 1, name, 0, 1, gone_by=gone_by, gone_why=gone_why), is_living))

    async def evict(self, row: HubRow) -> None:
        self.evicted.append(row)

    async def rows(self, rows: Sequence[Json]) -> None:
        self.rows_heard += rows

    def ask(self, verb: Verb, **argument: object) -> list[Any]:
        """Return where the answer comes."""
        answers: list[Any] = []
        request = Request(verb, "", argument)
        Deferred.fromCoroutine(answer_with(self.nodes.verbs, request, self)).addBoth(answers.append)
        return answers

    def drain(self, node: int | None, *, rate_per_s: int = 10, is_waited: bool = False) -> list[Any]:
        return self.ask(Verb.CLUSTER_DRAIN, node=node, rate_per_s=rate_per_s, is_waited=is_waited)


@pytest.fixture
def hubs() -> tuple[OneHub, OneHub]:
    """Hubs 1 and 2, linked; 3 lives and is not linked, 4 is gone."""
    one, two = OneHub(1, "one"), OneHub(2, "two", "two.example:1883")
    one.linked.link(two.linked)
    one.know(2, "two")
    one.know(3, "three")
    one.know(4, "four", is_living=False)
    return one, two


def test_own_hub_is_drained_and_resumed(hubs: tuple[OneHub, OneHub]) -> None:
    """Its clients are sent to the other one, where that one says it is."""
    one, two = hubs
    one.draining.clients = 3

    assert one.drain(None) == [{"node": 1, "name": "one", "clients": 3, "closed": 0}]
    assert one.draining.begun == [(10, Destination(has_hubs=True, references=("two.example:1883",)))]
    assert two.draining.begun == []

    assert one.ask(Verb.CLUSTER_RESUME, node=1) == [{"node": 1, "name": "one", "was_draining": True}]
    assert one.ask(Verb.CLUSTER_RESUME, node=1) == [{"node": 1, "name": "one", "was_draining": False}]


def test_other_hub_is_drained_and_resumed_over_its_link(hubs: tuple[OneHub, OneHub]) -> None:
    """It hears where its clients shall go from the hub that was asked."""
    one, two = hubs

    assert one.drain(2, rate_per_s=7) == [{"node": 2, "name": "two", "clients": 0, "closed": 0}]
    assert two.draining.begun == [(7, Destination(has_hubs=True))]
    assert one.draining.begun == []
    assert one.ask(Verb.CLUSTER_RESUME, node=2) == [{"node": 2, "name": "two", "was_draining": True}]


def test_nobody_is_sent_to_a_hub_that_drains_itself(hubs: tuple[OneHub, OneHub]) -> None:
    one, two = hubs
    two.draining.is_draining = True

    one.drain(1)

    assert one.draining.begun == [(10, Destination())]


def test_who_waits_hears_of_the_progress_until_the_hub_is_empty(hubs: tuple[OneHub, OneHub]) -> None:
    one, two = hubs
    two.draining.clients = 5

    answers = one.drain(2, is_waited=True)
    assert answers == []
    two.draining.clients, two.draining.closed = 2, 3
    two.reactor.advance(REPORT_S)
    two.draining.clients, two.draining.closed = 0, 5
    two.reactor.advance(REPORT_S)

    assert one.rows_heard == [{"node": 2, "done": 0, "total": 5}, {"node": 2, "done": 3, "total": 5}]
    assert answers == [{"node": 2, "name": "two", "clients": 0, "closed": 5}]


def test_who_waits_hears_that_somebody_has_resumed_the_hub(hubs: tuple[OneHub, OneHub]) -> None:
    one, two = hubs
    two.draining.clients = 5
    answers = one.drain(2, is_waited=True)

    two.draining.resume()
    two.reactor.advance(REPORT_S)

    assert answers[0].check(ConflictError)
    assert "hub two (2) was resumed before it was empty" in str(answers[0].value)


@pytest.mark.parametrize(
    ("node", "error", "text"),
    [
        (3, UnavailableError, r"hub three \(3\): there is no link to it"),
        (4, NotFoundError, r"hub four \(4\) is gone"),
        (9, NotFoundError, "there is no hub 9; "),
        ("x", ConfigError, "node: expected a number"),
    ],
)
def test_hub_that_cannot_be_drained_is_named(
    hubs: tuple[OneHub, OneHub], node: Any, error: type[Exception], text: str
) -> None:
    (failure,) = hubs[0].drain(node)

    with pytest.raises(error, match=text):
        failure.raiseException()


def test_refusal_of_the_other_hub_names_it(hubs: tuple[OneHub, OneHub]) -> None:
    one, two = hubs
    two.draining.is_ready = False

    (failure,) = one.drain(2)

    with pytest.raises(UnavailableError, match=r"hub two \(2\): the hub is starting or stopping"):
        failure.raiseException()


@pytest.mark.parametrize(
    "changed",
    [
        {"rate_per_s": 0},
        {"rate_per_s": 1_000_001},
        {"rate_per_s": "fast"},
        {"is_waited": 1},
    ],
)
def test_drain_refuses_what_it_cannot_do(hubs: tuple[OneHub, OneHub], changed: dict[str, object]) -> None:
    one, _ = hubs

    (failure,) = one.ask(Verb.CLUSTER_DRAIN, **{"node": 1, "rate_per_s": 1, "is_waited": False, **changed})

    assert failure.check(ConfigError)
    assert one.draining.begun == []


@pytest.mark.parametrize("references", ["one:1883", [1]])
def test_hub_refuses_references_that_are_none(hubs: tuple[OneHub, OneHub], references: object) -> None:
    """They come from another hub."""
    one, two = hubs
    argument = {"rate_per_s": 1, "is_waited": False, "has_hubs": True, "references": references}
    answers: list[Any] = []
    request = Request(Verb.CLUSTER_DRAIN, "", argument)
    Deferred.fromCoroutine(one.linked.commands.ask(2, request, one, 1.0)).addBoth(answers.append)

    assert isinstance(answers[0].error, ConfigError)
    assert two.draining.begun == []


def test_states_are_those_of_the_hubs_that_answer(hubs: tuple[OneHub, OneHub]) -> None:
    one, two = hubs
    one.draining.clients, two.draining.clients = 1, 2
    states: list[Any] = []
    Deferred.fromCoroutine(one.nodes.states()).addBoth(states.append)

    two_state = NodeState(2, 2, is_draining=False, reference="two.example:1883")
    assert states == [{1: NodeState(1, 1, is_draining=False, reference=""), 2: two_state}]


def test_stop_drains_within_its_time(hubs: tuple[OneHub, OneHub]) -> None:
    """Faster than usual if it must; what is left then, the stop closes."""
    one, _ = hubs
    one.draining.clients = 20_000
    left: list[Any] = []
    Deferred.fromCoroutine(one.nodes.drain_own(10.0, one.reactor.seconds)).addBoth(left.append)

    assert one.draining.begun[0][0] == 4_000
    one.draining.clients = 7
    one.reactor.pump([0.05] * 199)
    assert left == []
    one.reactor.pump([0.05] * 3)

    assert left == [7]
    assert one.draining.has_stopped


def test_stop_drains_a_few_clients_at_the_usual_rate(hubs: tuple[OneHub, OneHub]) -> None:
    one, _ = hubs
    one.draining.clients = 2
    left: list[Any] = []
    Deferred.fromCoroutine(one.nodes.drain_own(60.0, one.reactor.seconds)).addBoth(left.append)
    one.draining.clients = 0
    one.reactor.advance(0.1)

    assert left == [0]
    assert one.draining.begun[0][0] == CLIENTS_PER_S


def test_hub_is_evicted_without_being_asked(hubs: tuple[OneHub, OneHub]) -> None:
    """3 is not linked: it may be frozen, or not there."""
    one, _ = hubs

    answers = one.ask(Verb.CLUSTER_EVICT, node=3)

    assert answers == [{"node": 3, "name": "three", "was_gone": False, "has_left": False}]
    assert [row.number for row in one.evicted] == [3]


@pytest.mark.parametrize(("why", "has_left"), [(SILENT, False), (LEFT, True)])
def test_evicting_a_hub_that_is_gone_says_so(hubs: tuple[OneHub, OneHub], why: str, has_left: bool) -> None:
    """Its alarm is cleared; one that has left has none."""
    one, _ = hubs
    one.know(5, "five", is_living=False, gone_why=why)

    answers = one.ask(Verb.CLUSTER_EVICT, node=5)

    assert answers == [{"node": 5, "name": "five", "was_gone": True, "has_left": has_left}]
    assert len(one.evicted) == (not has_left)


def test_no_hub_evicts_itself_or_one_that_was_never_there(hubs: tuple[OneHub, OneHub]) -> None:
    one, _ = hubs

    (own,), (unknown,) = one.ask(Verb.CLUSTER_EVICT, node=1), one.ask(Verb.CLUSTER_EVICT, node=9)

    assert isinstance(own.value, ConflictError)
    assert "no hub evicts itself" in str(own.value)
    assert isinstance(unknown.value, NotFoundError)
    assert "there is no hub 9" in str(unknown.value)
    assert one.evicted == []
