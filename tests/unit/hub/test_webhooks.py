"""Which webhooks get which events, how a hub follows the accounts, and the alarm for what is lost."""

from __future__ import annotations

from typing import Any, cast

import pytest

from iothub.base.errors import UnavailableError
from iothub.hub.webhooks import AGAIN_S, ALARMED_S, Webhooks
from iothub.records.tenant_events import EventKind, TenantEvent
from iothub.testing.clock import ManualClock
from iothub_services.metrics.alarms import AlarmName, Alarms
from iothub_services.webhooks.outbox import Waiting
from iothub_services.webhooks.port import PLATFORM, Attempt, Result, Target
from iothub_tenants.accounts.changes import Change
from iothub_tenants.accounts.store import ChangeKind

URL = "https://hooks.example.com/"
ACME, BETA = 1, 2


class Deliverer:
    """Remembers what it is given."""

    def __init__(self) -> None:
        self.targets: list[tuple[str, ...]] = []
        self.got: list[tuple[str, str]] = []
        self.attempts: list[Attempt] = []

    def set_targets(self, targets: tuple[Target, ...]) -> None:
        self.targets.append(tuple(target.label for target in targets))

    def put(self, target: Target, event: Waiting) -> None:
        self.got.append((target.label, event.event))

    def take_attempts(self) -> list[Attempt]:
        found, self.attempts = self.attempts, []
        return found


class Scenario:
    """Accounts are what `create` has made, until `remove`."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.alarms = Alarms(self.clock)
        self.deliverer = Deliverer()
        self.targets: list[Target] = []
        self.noted: list[tuple[list[Attempt], int]] = []
        self.is_left = False
        self.is_down = False
        self.looked = 0
        self.webhooks = Webhooks(
            cast("Any", self.deliverer),
            cast("Any", None),
            self.run,
            self.alarms,
            self.clock,
            3,
            has_left=lambda: self.is_left,
        )

    async def run(self, name: str, _call: Any, _store: Any, *arguments: Any) -> Any:
        if self.is_down:
            raise UnavailableError("the accounts do not answer")
        if name == "accounts.webhooks":
            self.looked += 1
            return list(self.targets)
        self.noted.append(cast("Any", arguments))
        return None

    def create(self, tenant_id: int, label: str, *events: str) -> Target:
        made = Target(len(self.targets) + 1, tenant_id, label, URL, frozenset(events or ("*",)), ())
        self.targets.append(made)
        return made

    def run_once(self) -> None:
        with pytest.raises(StopIteration):
            self.webhooks.run_once().send(None)

    def changed(self, kind: ChangeKind) -> None:
        self.webhooks.on_changes([Change(1, 0, kind, "x", 0)])

    def event(self, tenant_id: int, kind: EventKind) -> None:
        self.webhooks.take(TenantEvent(kind, tenant_id, "acme", "c", 5), "3-1", b"{}")


@pytest.fixture
def scenario() -> Scenario:
    return Scenario()


def test_an_event_goes_to_its_tenants_webhooks_and_to_the_platforms(scenario: Scenario) -> None:
    scenario.create(ACME, "acme/all")
    scenario.create(ACME, "acme/quotas", "quota/*")
    scenario.create(PLATFORM, "ops", "client/connected", "alarm/*")
    scenario.run_once()

    scenario.event(ACME, EventKind.CLIENT_CONNECTED)
    scenario.event(BETA, EventKind.CLIENT_CONNECTED)
    scenario.event(ACME, EventKind.QUOTA_EXCEEDED)
    scenario.event(PLATFORM, EventKind.ALARM_RAISED)

    assert scenario.deliverer.got == [
        ("acme/all", "client/connected"),
        ("ops", "client/connected"),
        ("ops", "client/connected"),
        ("acme/all", "quota/exceeded"),
        ("acme/quotas", "quota/exceeded"),
        ("ops", "alarm/raised"),
    ]


def test_a_tenant_without_webhooks_is_not_watched(scenario: Scenario) -> None:
    scenario.create(ACME, "acme/quotas", "quota/*")
    scenario.run_once()

    assert [scenario.webhooks.has(each) for each in (ACME, BETA, PLATFORM)] == [True, False, False]
    assert scenario.webhooks.wants(ACME, EventKind.QUOTA_WARNING)
    assert not scenario.webhooks.wants(ACME, EventKind.CLIENT_CONNECTED)


def test_accounts_are_read_when_webhooks_change_and_once_a_minute(scenario: Scenario) -> None:
    """A replaced secret stops signing without a change."""
    scenario.run_once()
    scenario.changed(ChangeKind.DEVICE)
    scenario.run_once()
    assert (scenario.looked, scenario.deliverer.targets) == (1, [])

    scenario.create(ACME, "acme/pager")
    scenario.changed(ChangeKind.WEBHOOK)
    scenario.run_once()
    scenario.clock.advance(AGAIN_S)
    scenario.run_once()
    scenario.targets.clear()
    scenario.changed(ChangeKind.WEBHOOK)
    scenario.run_once()

    assert scenario.looked == 4
    assert scenario.deliverer.targets == [("acme/pager",), ()]


def test_accounts_that_do_not_answer_are_asked_again(scenario: Scenario) -> None:
    scenario.create(ACME, "acme/pager")
    scenario.is_down = True
    with pytest.raises(UnavailableError):
        scenario.webhooks.run_once().send(None)
    scenario.is_down = False
    scenario.run_once()

    assert scenario.deliverer.targets == [("acme/pager",)]


def test_what_an_earlier_run_has_left_is_seen_to_without_webhooks(scenario: Scenario) -> None:
    scenario.is_left = True
    scenario.run_once()
    scenario.clock.advance(AGAIN_S)
    scenario.run_once()

    assert scenario.deliverer.targets == [()]


def test_attempts_are_written_down(scenario: Scenario) -> None:
    target = scenario.create(ACME, "acme/pager")
    scenario.deliverer.attempts = [Attempt(target.id, 1, "3-1", "client/connected", "failed", 500, "no")]
    scenario.run_once()

    assert scenario.noted == [([Attempt(target.id, 1, "3-1", "client/connected", "failed", 500, "no")], 3)]


def test_a_loss_raises_an_alarm_until_none_has_followed_for_a_while(scenario: Scenario) -> None:
    target = scenario.create(ACME, "acme/pager")
    scenario.webhooks.on_lost(target, Result.QUEUE_FULL, 1)
    scenario.clock.advance(ALARMED_S - 1)
    scenario.webhooks.on_lost(target, Result.GIVEN_UP, 2)
    scenario.clock.advance(ALARMED_S - 1)
    scenario.run_once()

    (alarm,) = scenario.alarms.active()
    assert (alarm.name, alarm.subject, alarm.detail) == (AlarmName.WEBHOOK_LOST, "acme/pager", "given_up")
    scenario.clock.advance(1)
    scenario.run_once()
    assert scenario.alarms.active() == []
