"""Retained messages that nobody can read: kept, named, counted; the others come, and the alarm ends when they are put right or gone."""

from __future__ import annotations

from typing import Any, cast

import pytest
from twisted.internet.defer import Deferred

from iothub.base.reasons import Drop
from iothub_services.quota.ledger import LocalLedger
from iothub_services.quota.names import Quota
from iothub_services.quota.resolve import resolve_texts
from iothub_services.retained.port import RetainedBody, RetainedTopic
from iothub_tenants.broker.unreadable import WORD, UnreadableRetained
from tests.unit.tenants.broker.test_retained_replay import TENANT, Desk, topics

HEADER = "table t:retained, retained message 1/r/1: format version 2, this program knows 1: upgrade it"


def damage(desk: Desk, topic: bytes, first: int = 9) -> RetainedBody:
    """Change the first byte of a stored body, as a newer program would write it; return what was there."""
    right = desk.bodies.store._bodies[TENANT, topic]
    desk.bodies.store._bodies[TENANT, topic] = right._replace(body=bytes((first,)) + right.body[1:])
    return right


def put_back(desk: Desk, body: RetainedBody) -> None:
    desk.bodies.store._bodies[TENANT, body.topic] = body


def look_again(desk: Desk) -> None:
    for asked in desk.unreadable.some(16).values():
        Deferred.fromCoroutine(desk.retaining.look_again(asked)).addErrback(desk.ended.append)


@pytest.mark.parametrize(
    ("first", "why"), [(9, "message of format version 9, this program knows 1"), (1, "the checksum differs")]
)
def test_body_that_nobody_can_read_is_named_and_the_others_come(first: int, why: str) -> None:
    desk = Desk(3)
    damage(desk, b"r/1", first)
    if first == 1:
        body = desk.bodies.store._bodies[TENANT, b"r/1"]
        put_back(desk, body._replace(body=body.body[:-1] + bytes((body.body[-1] ^ 1,))))

    desk.subscribe()

    assert topics(desk.taken(2.0)) == [b"r/2", b"r/0"]
    assert "retained message 'r/1' of tenant acme cannot be read: " in desk.alarms[WORD]
    assert why in desk.alarms[WORD]
    assert len(desk.unreadable) == 1
    assert desk.bench.tenant.counters.dropped == {Drop.STORE_FAILED: 1}


def test_alarm_ends_when_the_body_is_put_right() -> None:
    """Then it is delivered again."""
    desk = Desk(1)
    right = damage(desk, b"r/0")
    desk.subscribe()
    look_again(desk)
    assert WORD in desk.alarms

    put_back(desk, right)
    look_again(desk)

    assert desk.alarms == {}
    desk.subscribe()
    assert topics(desk.taken(2.0)) == [b"r/0"]


@pytest.mark.parametrize("how", ["replaced", "deleted", "expired", "deleted elsewhere", "tenant gone"])
def test_alarm_ends_when_the_message_is_gone(how: str) -> None:
    desk = Desk(1)
    damage(desk, b"r/0")
    desk.subscribe()

    if how == "replaced":
        desk.retain(b"r/0", b"new")
    elif how == "deleted":
        Deferred.fromCoroutine(desk.retaining.delete(b"r/#"))
    elif how == "expired":
        desk.retaining.gone(b"r/0")
    elif how == "deleted elsewhere":
        desk.bodies.store.delete(TENANT, [b"r/0"])
        look_again(desk)
    else:
        desk.unreadable.forget_tenant(TENANT)

    assert desk.alarms == {}
    assert len(desk.unreadable) == 0


def test_alarm_goes_on_with_the_next_one() -> None:
    desk = Desk(3)
    damaged = [damage(desk, b"r/0"), damage(desk, b"r/2")]
    desk.subscribe()
    named = [each for each in damaged if repr(each.topic.decode()) in desk.alarms[WORD]]
    (other,) = [each for each in damaged if each not in named]

    put_back(desk, named[0])
    look_again(desk)

    assert repr(other.topic.decode()) in desk.alarms[WORD]


def test_what_changed_while_it_was_looked_at_is_left_alone() -> None:
    """The answer may be of the message before."""
    desk = Desk(1)
    damage(desk, b"r/0")
    desk.subscribe()
    desk.bodies.is_held = True
    look_again(desk)

    desk.retain(b"r/0", b"new")
    desk.bodies.release()

    assert desk.alarms == {}
    desk.subscribe()
    assert desk.taken(2.0) == [(b"r/0", b"new")]


class Headless:
    """A store of which one header cannot be read; then it can."""

    def __init__(self, desk: Desk) -> None:
        self._store = desk.bodies.store
        self.is_right = False

    async def load(self, tenant_id: int) -> list[RetainedTopic]:
        return [self._of(RetainedTopic(b"r/1", 0, 0, 0, HEADER), topic) for topic in self._store.load(tenant_id)]

    async def fetch(self, tenant_id: int, asked: list[bytes]) -> list[RetainedBody]:
        found = self._store.fetch(tenant_id, asked)
        return [self._of(RetainedBody(b"r/1", 0, 0, b"", HEADER), body) for body in found]

    def _of(self, unread: Any, found: Any) -> Any:
        return unread if found.topic == b"r/1" and not self.is_right else found

    async def settle(self, _tenant_id: int) -> None:
        return


def test_header_that_nobody_can_read_is_told_by_the_start_and_counted_when_it_is_right() -> None:
    """No start ends by it; the others come."""
    desk = Desk(3, size=100)
    store, ledger = Headless(desk), LocalLedger(TENANT, resolve_texts(""), cast("Any", None))
    desk.bodies = cast("Any", store)
    desk.retaining = desk.retained_by(ledger)
    Deferred.fromCoroutine(desk.retaining.load()).addErrback(desk.ended.append)
    size = ledger.used(Quota.RETAINED_BYTES) // 2

    assert HEADER in desk.alarms[WORD]
    assert ledger.used(Quota.RETAINED_MESSAGES) == 3
    desk.subscribe()
    assert sorted(topics(desk.taken(2.0))) == [b"r/0", b"r/2"]

    store.is_right = True
    look_again(desk)

    assert desk.alarms == {}
    assert (ledger.used(Quota.RETAINED_MESSAGES), ledger.used(Quota.RETAINED_BYTES)) == (3, 3 * size)
    desk.subscribe()
    assert len(desk.taken(2.0)) == 3


def test_those_looked_at_longest_ago_are_looked_at_first() -> None:
    unreadable = UnreadableRetained(lambda *_: None)
    for number in range(5):
        unreadable.found(number % 2, "acme", b"t/%d" % number, "damaged")

    assert unreadable.some(2) == {0: [b"t/0"], 1: [b"t/1"]}
    assert unreadable.some(2) == {0: [b"t/2"], 1: [b"t/3"]}
    assert unreadable.some(2) == {0: [b"t/4", b"t/0"]}
