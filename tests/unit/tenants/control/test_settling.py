"""SUBACK and UNSUBACK wait until every hub routes by what they say; packets of one client wait together, each for its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from twisted.internet.defer import Deferred

from iothub.engine.router import Subscription
from iothub.engine.state import Place, Session
from iothub.testing.clock import ManualClock
from iothub_services.events.port import Offsets
from iothub_services.sessions.port import HERE, SingleHub
from iothub_tenants.broker.sys_topics import SysTopics
from iothub_tenants.control.subscribe import MOST_AWAITING_PEERS
from tests.support.clients import property_names as names
from tests.support.clients.mqtt_clients import Client
from tests.support.clients.packets import SUBACK, UNSUBACK
from tests.support.in_process.control_harness import Harness

KEPT = [(names.SESSION_EXPIRY, 100)]
KNOWN_S = 0.5  # until these others know what was durable


@dataclass
class Others(SingleHub):
    """Other hubs, which know half a second later what was durable. `waits`: when each wait began."""

    is_alone = False
    clock: ManualClock = field(default_factory=ManualClock)
    waits: list[tuple[float, Deferred[None]]] = field(default_factory=list)
    knows_all: bool = False
    places: list[Offsets | None] = field(default_factory=list)

    def place(self, epoch: int) -> Place:
        return Place(HERE, epoch)

    def settle(self, tenant_id: int, place: Offsets | None) -> Deferred[None] | None:
        assert tenant_id == 7
        self.places.append(place)
        if self.knows_all:
            return None
        waited: Deferred[None] = Deferred()
        self.waits.append((self.clock.monotonic(), waited))
        return waited

    def pass_time(self, seconds: float) -> None:
        """Those whose time has come go on, in their order."""
        self.clock.advance(seconds)
        while self.waits and self.waits[0][0] + KNOWN_S <= self.clock.monotonic():
            self.waits.pop(0)[1].callback(None)


@pytest.fixture
def others() -> Others:
    return Others()


@pytest.fixture
def harness(make_harness: Callable[..., Harness], others: Others) -> Harness:
    return make_harness(cluster=others)


def answers(client: Client, harness: Harness) -> list[tuple[int, int]]:
    """What has come since, as (kind, Packet Identifier)."""
    harness.settle()
    return [(each.kind, each.packet_id) for each in client.fence()]


def test_subscribes_of_one_client_share_a_wait(harness: Harness, others: Others) -> None:
    """Ten of them take half a second, not five; their answers come in order."""
    client = harness.join(props=KEPT)
    for number in range(1, 11):
        client.send_subscribe((f"f/{number}", 1), packet_id=number)
    assert answers(client, harness) == []
    assert len(others.waits) == 10

    others.pass_time(KNOWN_S)

    assert answers(client, harness) == [(SUBACK, number) for number in range(1, 11)]


def test_each_answer_waits_for_its_own(harness: Harness, others: Others) -> None:
    """A packet that came later is answered later: the wait begins when its change is durable."""
    client = harness.join(props=KEPT)
    client.send_subscribe(("a", 1), packet_id=1)
    harness.settle()
    others.pass_time(KNOWN_S / 2)
    client.send_subscribe(("b", 1), packet_id=2)
    harness.settle()

    others.pass_time(KNOWN_S / 2)
    assert answers(client, harness) == [(SUBACK, 1)]
    others.pass_time(KNOWN_S / 2)
    assert answers(client, harness) == [(SUBACK, 2)]


def test_hubs_that_know_it_already_are_not_waited_for(harness: Harness, others: Others) -> None:
    """The answer leaves in the same turn; what is asked is the place in the log that the change got."""
    others.knows_all = True
    client = harness.join(props=KEPT)
    before = len(harness.journal.events)

    assert client.subscribe(("a", 1)).codes == [1]
    client.unsubscribe("a")

    assert others.places == [(before + 1,), (before + 2,)]
    assert others.waits == []


def test_change_that_is_not_durable_holds_up_what_is_behind_it(harness: Harness, others: Others) -> None:
    """Only waits are shared: the second SUBSCRIBE is not looked at before the first is in force."""
    client = harness.join(props=KEPT)
    harness.journal.is_held = True
    client.send_subscribe(("a", 1), packet_id=1)
    client.send_subscribe(("a", 2), packet_id=2)
    harness.settle()
    assert (len(harness.journal.waiting), others.waits) == (1, [])

    harness.journal.release()
    harness.settle()

    assert [each.qos for each in harness.session("c").subscriptions.values()] == [2]
    others.pass_time(KNOWN_S)
    assert answers(client, harness) == [(SUBACK, 1), (SUBACK, 2)]


def test_what_is_unsubscribed_before_its_suback_is_not_replayed(
    harness: Harness, others: Others, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its Retained Messages would come for a subscription that is not there."""
    replayed: list[bytes] = []

    def subscribed(
        _: SysTopics, _broker: object, _session: Session, subscription: Subscription, **_options: bool
    ) -> None:
        replayed.append(subscription.filter)

    monkeypatch.setattr(SysTopics, "subscribed", subscribed)  # `wants_replay` asks it
    client = harness.join(props=KEPT)
    client.send_subscribe(("a", 1), packet_id=1)
    client.send_unsubscribe("a", packet_id=2)
    client.send_subscribe(("b", 1), packet_id=3)
    harness.settle()
    others.pass_time(KNOWN_S)

    assert answers(client, harness) == [(SUBACK, 1), (UNSUBACK, 2), (SUBACK, 3)]
    assert replayed == [b"b"]


def test_client_that_leaves_while_it_waits_is_answered_by_nobody(harness: Harness, others: Others) -> None:
    """The subscription stays: it was durable."""
    client = harness.join(props=KEPT)
    client.send_subscribe(("a", 1), packet_id=1)
    harness.settle()
    client.drop()
    harness.settle()
    again = harness.join(props=KEPT, clean=False)

    others.pass_time(KNOWN_S)

    assert answers(again, harness) == []
    assert list(harness.session("c").subscriptions) == [(None, b"a")]


def test_passing_session_waits_for_no_log(harness: Harness, others: Others) -> None:
    """It is in none that other hubs would have to follow."""
    assert harness.join().subscribe(("a", 1)).codes == [1]

    assert others.waits == []


def test_waits_of_one_client_are_bounded(harness: Harness, others: Others) -> None:
    """The next packet is not looked at before one of them is answered."""
    client = harness.join(props=KEPT)
    for number in range(1, 2 * MOST_AWAITING_PEERS + 1):
        client.send_subscribe(("a", number % 3), packet_id=number)
    harness.settle()
    assert len(others.waits) == MOST_AWAITING_PEERS + 1

    for _ in range(3):
        others.pass_time(KNOWN_S)
        harness.settle()

    assert answers(client, harness) == [(SUBACK, number) for number in range(1, 2 * MOST_AWAITING_PEERS + 1)]
    for number in range(1, 2 * MOST_AWAITING_PEERS + 1):
        client.send_subscribe(("a", number % 3), packet_id=number)
    harness.settle()
    assert len(others.waits) == MOST_AWAITING_PEERS + 1


def test_answer_of_an_earlier_packet_lets_nothing_past_a_later_one(harness: Harness, others: Others) -> None:
    """The second one is not durable yet when the first is answered: the third still waits for it."""
    client = harness.join(props=KEPT)
    client.send_subscribe(("a", 1), packet_id=1)
    harness.settle()
    harness.journal.is_held = True
    client.send_subscribe(("b", 1), packet_id=2)
    client.send_subscribe(("c", 1), packet_id=3)

    others.pass_time(KNOWN_S)
    harness.settle()

    assert len(harness.journal.waiting) == 1


@settings(deadline=None, max_examples=15)
@given(steps=some.lists(some.tuples(some.booleans(), some.sampled_from("abc"), some.floats(0, 0.4)), max_size=12))
def test_order_of_effects_is_the_order_of_packets(
    steps: list[tuple[bool, str, float]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """However they are spread: the session ends as if each had been waited for, every packet has its answer, none before its time."""
    others = Others()
    harness = Harness(tmp_path_factory.mktemp("harness"), cluster=others)
    client = harness.join(props=KEPT)
    wanted: set[bytes] = set()
    sent_at: dict[int, float] = {}
    for number, (is_wanted, name, seconds) in enumerate(steps, 1):
        if is_wanted:
            client.send_subscribe((name, 1), packet_id=number)
        else:
            client.send_unsubscribe(name, packet_id=number)
        had = name.encode() in wanted
        (wanted.add if is_wanted else wanted.discard)(name.encode())
        harness.settle()
        if is_wanted or had:
            sent_at[number] = others.clock.monotonic()
        others.pass_time(seconds)
        early = [each for _, each in answers(client, harness)]
        assert all(others.clock.monotonic() - sent_at.pop(each) >= KNOWN_S for each in early if each in sent_at)
    others.pass_time(KNOWN_S)

    left = {each for _, each in answers(client, harness)}
    assert {topic for _, topic in harness.session("c").subscriptions} == wanted
    assert left == set(sent_at)
    harness.close()
