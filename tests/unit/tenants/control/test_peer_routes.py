"""CONNECT waits until a tenant is open at every hub, SUBACK until every hub routes to the client, and UNSUBACK for nobody."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from iothub.engine.state import Session, TenantPlane
from iothub_services.events.port import Offsets
from iothub_services.sessions.port import Will
from iothub_tenants.broker.peer_routes import OnDone, Pair
from iothub_tenants.control.subscribe import MOST_AWAITING_PEERS
from tests.support.clients import property_names as names
from tests.support.clients.mqtt_clients import Client
from tests.support.clients.packets import CONNACK, SUBACK, UNSUBACK
from tests.support.in_process.control_harness import Harness

KEPT = [(names.SESSION_EXPIRY, 100)]


class Change:
    """Fulfils `OptionChange`: notes what it hears. `routed`: whoever waits for the announcement."""

    def __init__(self, pairs: list[Pair], *, is_slow: bool) -> None:
        self.options = [
            tuple(None if each is None else (each.filter, each.qos) for each in (before, after))
            for before, after in pairs
        ]
        self.is_slow = is_slow
        self.heard: list[str] = []
        self.routed: list[OnDone] = []

    def await_routed(self, on_done: OnDone) -> bool:
        if self.is_slow:
            self.routed.append(on_done)
        return self.is_slow

    def note_durable(self, place: Offsets) -> None:
        assert place
        self.heard.append("durable")

    def end(self) -> None:
        self.heard.append("end")


class Others:
    """Other hubs, which answer when the test says so. `is_opening`, `is_slow`, `is_changing`: somebody has to be waited for."""

    def __init__(self) -> None:
        self.is_changing = False
        self.changes: list[Change] = []
        self.is_opening = False
        self.is_slow = True
        self.open: list[str] = []
        self.opened: list[OnDone] = []
        self.routed: list[tuple[list[bytes], OnDone]] = []

    def open_tenant(self, tenant: TenantPlane) -> None:
        self.open.append(tenant.name)

    def close_tenant(self, tenant: TenantPlane) -> None:
        self.open.remove(tenant.name)

    def is_opened(self, tenant: TenantPlane) -> bool:
        assert tenant.name in self.open
        return not self.is_opening

    def await_opened(self, tenant: TenantPlane, on_done: OnDone) -> bool:
        assert tenant.name in self.open
        if self.is_opening:
            self.opened.append(on_done)
        return self.is_opening

    def await_routed(self, tenant: TenantPlane, filters: Iterable[bytes], on_done: OnDone) -> bool:
        assert tenant.name in self.open
        if self.is_slow:
            self.routed.append((list(filters), on_done))
        return self.is_slow

    def change_options(self, session: Session, pairs: Iterable[Pair]) -> Change | None:
        assert session.is_persistent
        self.changes.append(Change(list(pairs), is_slow=self.is_changing))
        return self.changes[-1]

    def await_changes(self, session: Session, on_done: OnDone) -> bool:
        del session, on_done
        return False

    def answer_opening(self) -> None:
        self.is_opening = False
        opened, self.opened = self.opened, []
        for on_done in opened:
            on_done()


@pytest.fixture
def others() -> Others:
    return Others()


@pytest.fixture
def harness(make_harness: Callable[..., Harness], others: Others) -> Harness:
    return make_harness(make_routes=lambda _plane: others)


def answers(client: Client, harness: Harness) -> list[tuple[int, int]]:
    """What has come since, as (kind, Packet Identifier)."""
    harness.settle()
    return [(each.kind, each.packet_id) for each in client.fence()]


@pytest.mark.parametrize("props", [[], KEPT], ids=["transient", "persistent"])
def test_suback_waits_until_every_hub_routes(harness: Harness, others: Others, props: list[tuple[int, int]]) -> None:
    """The subscription is in force here before, and the client's next packets are handled meanwhile."""
    client = harness.join(props=props)

    client.send_subscribe(("a", 1), ("b/#", 0), packet_id=1)

    assert answers(client, harness) == []  # but for the answer to the PINGREQ
    assert len(harness.session("c").subscriptions) == 2
    [(filters, on_done)] = others.routed
    assert filters == [b"a", b"b/#"]
    on_done()
    assert answers(client, harness) == [(SUBACK, 1)]


def test_what_every_hub_knows_is_answered_at_once(harness: Harness, others: Others) -> None:
    """Shared subscriptions are routed as clients write them."""
    client = harness.join()
    client.send_subscribe(("$share/g/a", 1), packet_id=1)
    assert answers(client, harness) == []
    [(filters, on_done)] = others.routed
    assert filters == [b"$share/g/a"]
    on_done()
    assert answers(client, harness) == [(SUBACK, 1)]
    others.is_slow = False

    client.send_subscribe(("a", 1), packet_id=2)

    assert answers(client, harness) == [(SUBACK, 2)]


def test_so_many_subscribes_of_a_client_wait_at_a_time(harness: Harness, others: Others) -> None:
    """The next one is not read before one of them is answered."""
    client = harness.join()
    for number in range(1, MOST_AWAITING_PEERS + 3):
        client.send_subscribe((f"f/{number}", 1), packet_id=number)
    harness.settle()
    waiting = len(others.routed)

    while others.routed:
        others.routed.pop(0)[1]()
        harness.settle()

    assert waiting == MOST_AWAITING_PEERS + 1  # the last of them holds up the rest
    assert [number for _, number in answers(client, harness)] == list(range(1, MOST_AWAITING_PEERS + 3))


def test_an_unsubscribe_waits_for_nobody(harness: Harness, others: Others) -> None:
    """It ends what is still waiting for its SUBACK, which comes all the same."""
    client = harness.join()
    client.send_subscribe(("a", 1), packet_id=1)
    client.send_unsubscribe("a", packet_id=2)
    assert answers(client, harness) == [(UNSUBACK, 2)]

    others.routed.pop()[1]()

    assert answers(client, harness) == [(SUBACK, 1)]


def test_a_client_that_leaves_while_it_waits_is_forgotten(harness: Harness, others: Others) -> None:
    client = harness.join()
    client.send_subscribe(("a", 1), packet_id=1)
    harness.settle()
    client.close()

    others.routed.pop()[1]()
    harness.settle()

    assert harness.acme.plane.sessions == {}


def test_a_connect_waits_until_the_tenant_is_open_at_every_hub(harness: Harness, others: Others) -> None:
    """Nobody of it publishes or is acknowledged a subscription before."""
    others.is_opening = True
    client = harness.open_connection()
    client.client_id = "c"
    client.send(client.connect_bytes("c", "acme/dev1", keep_alive=65_535))
    harness.settle()
    assert (others.open, client.stream.transport.take()) == (["acme"], b"")  # type: ignore[attr-defined]

    others.answer_opening()
    harness.settle()

    assert client.expect(CONNACK).code == 0


def test_a_will_waits_until_the_tenant_is_open(harness: Harness, others: Others) -> None:
    """A session from before the start has one, and nobody of its tenant is connected here."""
    done: list[None] = []
    harness.join(props=KEPT).close()
    harness.settle()
    others.is_opening = True

    harness.acme.publish_will(harness.session("c"), Will(b"w", b"", 0, False), b"", lambda: done.append(None))
    harness.settle()
    assert done == []
    others.answer_opening()

    assert done == [None]


def test_a_tenant_that_is_dropped_is_closed(harness: Harness, others: Others) -> None:
    harness.join().close()
    harness.settle()
    harness.pass_time(60)

    assert harness.hub.brokers.drop_idle() == 1
    assert others.open == []


def test_options_of_a_persistent_session_change_in_steps(harness: Harness, others: Others) -> None:
    """The other hubs are prepared, then it is durable and in force, then all know it; shared subscriptions have no part in that."""
    client = harness.join(props=KEPT)
    client.send_subscribe(("a", 1), ("$share/g/b", 1), packet_id=1)
    harness.settle()
    [first] = others.changes
    assert (first.options, first.heard) == ([(None, (b"a", 1))], ["durable"])
    others.routed.pop()[1]()
    assert answers(client, harness) == [(SUBACK, 1)]
    assert first.heard == ["durable", "end"]

    others.is_changing = True
    client.send_subscribe(("a", 0), packet_id=2)
    harness.settle()
    second = others.changes[-1]
    assert (second.options, second.heard, others.routed) == ([((b"a", 1), (b"a", 0))], [], [])
    assert harness.session("c").subscriptions[None, b"a"].qos == 1
    second.routed.pop()()
    harness.settle()
    assert (second.heard, harness.session("c").subscriptions[None, b"a"].qos) == (["durable"], 0)
    others.routed.pop()[1]()
    client.send_unsubscribe("a", "$share/g/b", packet_id=3)

    assert answers(client, harness) == [(SUBACK, 2), (UNSUBACK, 3)]
    assert (others.changes[-1].options, others.changes[-1].heard) == ([((b"a", 0), None)], ["durable", "end"])


def test_options_that_the_log_refuses_have_not_changed(harness: Harness, others: Others) -> None:
    client = harness.join(props=KEPT)
    others.is_slow = False
    harness.journal.is_down = True

    client.send_subscribe(("a", 1), packet_id=1)

    assert answers(client, harness) == [(SUBACK, 1)]
    assert others.changes[-1].heard == ["end"]


def test_client_that_leaves_before_its_options_may_change_keeps_those_it_has(harness: Harness, others: Others) -> None:
    client = harness.join(props=KEPT)
    others.is_slow, others.is_changing = False, True
    client.send_subscribe(("a", 1), packet_id=1)
    harness.settle()
    client.close()
    harness.settle()

    others.changes[-1].routed.pop()()
    harness.settle()

    assert harness.session("c").subscriptions == {}
    assert others.changes[-1].heard == ["end"]
