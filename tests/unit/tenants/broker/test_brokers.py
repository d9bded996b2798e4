"""Brokers are made once, found by tenant, and dropped when nothing of theirs lives."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from twisted.internet.defer import Deferred

from iothub_services.auth.port import TenantRecord
from iothub_tenants.broker.brokers import Brokers


class Workshop:
    """Makes brokers when told to."""

    def __init__(self) -> None:
        self.waiting: list[tuple[int, Deferred[Any]]] = []

    async def make(self, record: TenantRecord) -> Any:
        self.waiting.append((record.id, Deferred()))
        return await self.waiting[-1][1]

    def finish(self, *, is_idle: bool = False) -> None:
        tenant_id, answer = self.waiting.pop(0)
        answer.callback(SimpleNamespace(tenant_id=tenant_id, is_idle=is_idle))


def ask(brokers: Brokers, tenant_id: int) -> list[Any]:
    answers: list[Any] = []
    Deferred.fromCoroutine(brokers.broker(TenantRecord(tenant_id, f"t{tenant_id}"))).addBoth(answers.append)
    return answers


def test_broker_is_made_once_for_all_who_ask() -> None:
    workshop = Workshop()
    brokers = Brokers(workshop.make)
    first, second = ask(brokers, 1), ask(brokers, 1)
    assert len(workshop.waiting) == 1

    workshop.finish()

    assert first[0] is second[0] is brokers.present(1)
    assert (len(brokers), workshop.waiting) == (1, [])


def test_broker_that_could_not_be_made_is_tried_again_by_the_next_who_asks() -> None:
    """Whoever asked meanwhile shares the error: a store that is down is not asked by each of them in turn."""
    workshop = Workshop()
    brokers = Brokers(workshop.make)
    asked = [ask(brokers, 1), ask(brokers, 1)]
    workshop.waiting.pop(0)[1].errback(OSError("disk"))
    later = ask(brokers, 1)
    workshop.finish()

    assert [type(answer[0].value) for answer in asked] == [OSError, OSError]
    assert later[0] is brokers.present(1)


def test_brokers_of_two_tenants_are_made_side_by_side() -> None:
    """A tenant whose broker takes long to make keeps nobody else waiting."""
    workshop = Workshop()
    brokers = Brokers(workshop.make)

    ask(brokers, 1)
    ask(brokers, 2)

    assert [tenant_id for tenant_id, _ in workshop.waiting] == [1, 2]


def test_broker_is_given_to_a_thousand_who_wait() -> None:
    """They are answered one after the other, not one inside the other: after a restart all clients of a tenant come at once."""
    workshop = Workshop()
    brokers = Brokers(workshop.make)
    answers = [ask(brokers, 1) for _ in range(1000)]

    workshop.finish()

    assert all(answer == [brokers.present(1)] for answer in answers)


def test_idle_brokers_are_dropped() -> None:
    workshop = Workshop()
    brokers = Brokers(workshop.make)
    for tenant_id, is_idle in ((1, True), (2, False), (3, True)):
        ask(brokers, tenant_id)
        workshop.finish(is_idle=is_idle)

    assert brokers.drop_idle() == 2
    assert [cast("Any", broker).tenant_id for broker in brokers] == [2]
    brokers.drop(2)
    brokers.drop(2)
    assert brokers.present(2) is None


def test_broker_that_goes_is_looked_at_for_the_last_time() -> None:
    """Dropped when idle, and dropped with its tenant: what it has counted must not be lost."""
    workshop = Workshop()
    seen: list[int] = []
    brokers = Brokers(workshop.make, lambda broker: seen.append(broker.tenant_id))
    for tenant_id in (1, 2, 3):
        ask(brokers, tenant_id)
        workshop.finish(is_idle=tenant_id == 2)

    brokers.drop_idle()
    brokers.drop(1)
    brokers.drop(1)

    assert (seen, len(brokers)) == ([2, 1], 1)
