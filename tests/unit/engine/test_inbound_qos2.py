"""The table of inbound QoS 2 is what the plane does: every event is driven in every state."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from iothub.engine import inbound_qos2
from iothub.engine.inbound_qos2 import FINISHING, FREE, ROUTED
from iothub.engine.state import OWED, AckSlot
from iothub.testing.engine import Bench, Client, ack, publish

PUBLISHER, RECEIVER = 9, 7  # queues
STATES = {name: value for name, value in vars(inbound_qos2).items() if name.isupper()}
PUBLISH = publish(b"a", b"x", 2, 1, properties=b"")


def table() -> dict[tuple[str, str], str]:
    """Return the table of the docstring: (event, state before) -> state after."""
    lines = (inbound_qos2.__doc__ or "").splitlines()
    ruler = next(index for index, line in enumerate(lines) if set(line.strip()) == {"-", " "})
    states = lines[ruler - 1].split()[1:]
    rows = [re.split(r"  +", line.strip()) for line in lines[ruler + 1 : lines.index("", ruler)]]
    return {
        (event, before): before if after == "." else after
        for event, *cells in rows
        for before, after in zip(states, cells, strict=True)
    }


class Case:
    """A persistent publisher whose Packet Identifier 1 is in a state, and a persistent receiver of what it publishes."""

    def __init__(self, state: int) -> None:
        self.bench = Bench()
        self.bench.client("s", queue_id=RECEIVER).subscribe(b"a", 2)
        self.publisher: Client = self.bench.client("p", version=5, queue_id=PUBLISHER)
        self.bench.settle()
        self.state = state

    def put(self) -> None:
        self.publisher.session.inbound = {1: self.state} if self.state != FREE else None

    def owe(self, code: int, *, is_held: bool = False) -> None:
        """A PUBLISH waits for its PUBREC on this connection."""
        slot = AckSlot(1, 2)
        slot.code = code
        slot.is_held = is_held
        self.publisher.connection.pending = [slot]

    def publish(self) -> None:
        self.put()
        self.publisher.send(PUBLISH)

    def publish_while_owed(self) -> None:
        self.owe(OWED)
        self.publish()

    def pubrel(self) -> None:
        self.put()
        self.publisher.send(ack(0x62, 1))

    def store(self) -> None:
        """The commit of a PUBLISH comes, whatever the state is by then."""
        self.publisher.send(PUBLISH)
        self.put()
        self.bench.store.commit()

    def store_and_refuse(self) -> None:
        self.bench.store.full = {RECEIVER}
        self.store()

    def fail(self) -> None:
        self.bench.store.fails = False
        self.store()

    def fail_without_an_answer(self) -> None:
        self.bench.store.fails = True
        self.store()

    def remove(self) -> None:
        self.owe(0x97, is_held=True)
        self.remove_without_owing()

    def remove_without_owing(self) -> None:
        self.put()
        self.bench.plane.inbound_finished(self.publisher.session, 1)

    def claim(self) -> None:
        self.put()
        self.bench.plane.restore(self.publisher.session, self.bench.store.claim(PUBLISHER))

    def claim_recorded(self) -> None:
        self.bench.store.queue(PUBLISHER).inbound.add(1)
        self.claim()

    def end(self) -> None:
        self.put()
        self.bench.plane.discard(self.publisher.session)


EVENTS: dict[str, Callable[[Case], None]] = {
    "PUBLISH": Case.publish,
    "PUBLISH, PUBREC is owed": Case.publish_while_owed,
    "PUBREL": Case.pubrel,
    "stored": Case.store,
    "stored, then refused": Case.store_and_refuse,
    "not stored, 0x97 sent": Case.fail,
    "not stored, no answer": Case.fail_without_an_answer,
    "removed": Case.remove,
    "removed, PUBREC not owed": Case.remove_without_owing,
    "claimed, recorded": Case.claim_recorded,
    "claimed, not recorded": Case.claim,
    "session ends": Case.end,
}


def test_table_is_total() -> None:
    """Every event in every state, and no state that has no name."""
    cells = table()

    assert cells.keys() == {(event, state) for event in EVENTS for state in STATES}
    assert set(cells.values()) == set(STATES)
    assert len(set(STATES.values())) == len(STATES)


@pytest.mark.parametrize(("cell", "after"), table().items(), ids=[" in ".join(cell) for cell in table()])
def test_table_says_what_the_plane_does(cell: tuple[str, str], after: str) -> None:
    """Exactly once, cell by cell [MQTT-4.3.3-10] [MQTT-4.3.3-11]."""
    event, before = cell
    case = Case(STATES[before])

    EVENTS[event](case)

    inbound = case.publisher.session.inbound or {}
    assert inbound.get(1, FREE) == STATES[after]
    assert inbound.keys() <= {1}


@pytest.mark.parametrize("before", STATES.values(), ids=STATES)
def test_client_hears_at_once_what_needs_no_disk(before: int) -> None:
    """PUBREC for what all receivers have already, PUBCOMP for what is not known; everything else waits."""
    published, released = Case(before), Case(before)

    published.put()
    released.put()

    assert published.publisher.send(PUBLISH) == (ack(0x50, 1) if before in (ROUTED, FINISHING) else b"")
    assert released.publisher.send(ack(0x62, 1)) == (ack(0x70, 1, 0x92) if before == FREE else b"")


def test_transient_session_frees_its_identifier_at_once() -> None:
    """What needs no store is ROUTED at once; PUBREL and a refusal make the identifier FREE at once."""
    bench = Bench()
    bench.client("s").subscribe(b"a", 2)
    publisher = bench.client("p", version=5)

    assert publisher.send(PUBLISH) == ack(0x50, 1)
    assert publisher.session.inbound == {1: ROUTED}
    assert publisher.send(ack(0x62, 1)) == ack(0x70, 1)
    assert publisher.session.inbound == {}
    bench.store.fails = False
    publisher.send(publish(b"a", b"x", 2, 1, retain=True, properties=b""))
    bench.store.commit()

    assert publisher.take() == ack(0x50, 1, 0x97)
    assert publisher.session.inbound == {}
