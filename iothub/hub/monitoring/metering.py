"""What each tenant has used, and what was refused it: read from the counters once a minute, and written to the log for statistics.

Knows where the numbers are and no log's inside. The message plane counts all the same; nothing here runs per message.

Theory: counters only rise, so a period is the difference of two looks. It is closed into an event with a number of its own, and the event is
kept until the log has it: a second attempt has the same number, so what was written twice is counted once. Periods end with the minutes of the
wall clock, so that hours are separate. A killed hub loses what it has counted since its last look, and nothing else; a stop looks once more.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from itertools import count, islice
from typing import Protocol

from iothub.base.clock import Clock
from iothub.base.errors import BackendError
from iothub.base.reasons import Drop
from iothub.records import analytics
from iothub.records.analytics import Metered, Period, Sample
from iothub.records.events import Event
from iothub_services.metrics.tallies import Tally
from iothub_services.queues.port import TenantUsage
from iothub_services.quota.names import Quota
from iothub_tenants.broker.broker import TenantBroker

LOOK_INTERVAL_S = 1.0
_TENANTS_AT_ONCE = 256  # whose events go to the log together; then the reactor may do something else
_EVENTS_AT_ONCE = 1_024
_UNWRITTEN = 10  # events of a tenant that wait for a log that fails; then the period grows instead

Record = Callable[[list[Event]], Awaitable[object]]
"""Durable when awaited. Raises BackendError."""


class Happened(Protocol):
    """What was counted as it happened."""

    drops: Tally
    refusals: Tally
    failed_logins: Tally


class Metering:
    """On the reactor thread. Invariant: every figure of a counter is in one event, or in the account that will make it, but for `lost`."""

    def __init__(
        self,
        brokers: Iterable[TenantBroker],
        happened: Happened,
        queued: Callable[[int], TenantUsage],
        record: Record,
        clock: Clock,
        incarnation: str,
        period_s: float = 60.0,
    ) -> None:
        self._brokers = brokers
        self._happened = happened
        self._queued = queued
        self._record = record
        self._clock = clock
        self._incarnation = incarnation
        self._period_ms = int(period_s * 1000)
        self._sequence = count(1)
        self._accounts: dict[int, _Account] = {}
        self._begun_ms = self._now_ms()
        self._is_begun = False
        self.written = 0  # events
        self.lost = 0

    def begin(self) -> None:
        """From here on there is somebody to count."""
        self._is_begun = True
        self._begun_ms = self._now_ms()

    async def run_once(self) -> None:
        """Close the period when its minute (or whatever it is) is over; to be called every `LOOK_INTERVAL_S`."""
        now_ms = self._now_ms()
        if now_ms // self._period_ms == self._begun_ms // self._period_ms:
            return
        from_ms, self._begun_ms = self._begun_ms, now_ms
        self._accounts = {number: account for number, account in self._accounts.items() if not account.is_over}
        self._follow(from_ms)
        accounts = iter(list(self._accounts.values()))
        while some := list(islice(accounts, _TENANTS_AT_ONCE)):
            if not await self._write(self._of_accounts(some, from_ms, now_ms)):
                return  # what is unwritten is tried again with the next period
        counts = self._of_counts(from_ms, now_ms)
        while events := list(islice(counts, _EVENTS_AT_ONCE)):
            await self._write(events)

    async def finish(self) -> None:
        """Close the last period, however short, in one call: the log closes next."""
        if not self._is_begun:
            return
        from_ms, now_ms = self._begun_ms, self._now_ms()
        self._follow(from_ms)
        events = self._of_accounts(list(self._accounts.values()), from_ms, now_ms)
        await self._write([*events, *self._of_counts(from_ms, now_ms)])

    def retire(self, broker: TenantBroker) -> None:
        """A broker goes: what it has counted stays."""
        account = self._account(broker.tenant_id, self._begun_ms)
        account.follow(broker)
        account.leave()

    def _follow(self, from_ms: int) -> None:
        for broker in self._brokers:
            self._account(broker.tenant_id, from_ms).follow(broker)

    def _account(self, tenant_id: int, from_ms: int) -> _Account:
        account = self._accounts.get(tenant_id)
        if account is None:
            account = self._accounts[tenant_id] = _Account(tenant_id, from_ms)
        return account

    def _of_accounts(self, accounts: list[_Account], from_ms: int, to_ms: int) -> list[Event]:
        events: list[Event] = []
        for account in accounts:
            account.gather()
            account.close(to_ms, self._period)
            events += account.unwritten
            missed = account.take_missed()
            if missed:
                self._happened.drops.add(account.tenant_id, "", Drop.NO_SUBSCRIBERS.value, missed)
            sample = Sample() if account.broker is None else self._sample(account.broker)
            if sample != Sample():
                events.append(analytics.tenant_sampled(account.tenant_id, self._period(from_ms, to_ms), sample))
        return events

    def _of_counts(self, from_ms: int, to_ms: int) -> Iterator[Event]:
        happened = self._happened
        for tenant_id, device, word, times in happened.drops.take_counts():
            period = self._period(from_ms, to_ms)
            yield analytics.message_dropped(tenant_id, period, reason=word, count=times, device=device)
        for tenant_id, device, word, times in happened.refusals.take_counts():
            period = self._period(from_ms, to_ms)
            yield analytics.quota_refused(tenant_id, period, quota=word, count=times, device=device)
        for tenant_id, device, word, times in happened.failed_logins.take_counts():
            period = self._period(from_ms, to_ms)
            yield analytics.auth_failed(tenant_id, period, cause=word, count=times, device=device)

    async def _write(self, events: list[Event]) -> bool:
        """Say whether the log has them. An event of usage that it may not have stays where it is."""
        if not events:
            return True
        try:
            await self._record(events)
        except BackendError:
            self.lost += sum(not self._is_kept(event) for event in events)
            return False
        self.written += len(events)
        for event in events:
            account = self._accounts.get(event.tenant_id)
            if account is not None:
                account.note_written(event)
        return True

    def _is_kept(self, event: Event) -> bool:
        account = self._accounts.get(event.tenant_id)
        return account is not None and event in account.unwritten

    def _sample(self, broker: TenantBroker) -> Sample:
        queued, ledger = self._queued(broker.tenant_id), broker.allowance.ledger
        return Sample(
            sessions=len(broker.plane.sessions),
            connected=broker.plane.connections,
            subscriptions=ledger.used(Quota.SUBSCRIPTIONS),
            queued_messages=queued.messages,
            queued_bytes=queued.bytes,
            retained_messages=ledger.used(Quota.RETAINED_MESSAGES),
            retained_bytes=ledger.used(Quota.RETAINED_BYTES),
        )

    def _period(self, from_ms: int, to_ms: int) -> Period:
        """A clock that was set back makes a period of no length."""
        return Period(self._incarnation, next(self._sequence), min(from_ms, to_ms), to_ms)

    def _now_ms(self) -> int:
        return int(self._clock.wall() * 1000)


class _Account:
    """One tenant. Invariant: `seen` is what the counters of `broker` said when they were last added to `carried`."""

    __slots__ = ("broker", "carried", "from_ms", "missed", "seen", "seen_missed", "tenant_id", "unwritten")

    def __init__(self, tenant_id: int, from_ms: int) -> None:
        self.tenant_id = tenant_id
        self.from_ms = from_ms  # when `carried` began
        self.broker: TenantBroker | None = None
        self.seen = Metered()
        self.carried = Metered()  # in no event yet
        self.seen_missed = self.missed = 0  # messages for nobody, which no observer hears of one by one
        self.unwritten: list[Event] = []

    @property
    def is_over(self) -> bool:
        return self.broker is None and not (self.unwritten or self.carried or self.missed)

    def note_written(self, event: Event) -> None:
        self.unwritten = [kept for kept in self.unwritten if kept is not event]

    def follow(self, broker: TenantBroker) -> None:
        """Another broker of this tenant counts from 0."""
        if broker is not self.broker:
            self.leave()
            self.broker = broker

    def leave(self) -> None:
        self.gather()
        self.broker, self.seen, self.seen_missed = None, Metered(), 0

    def gather(self) -> None:
        if self.broker is None:
            return
        now = _read(self.broker)
        self.carried += now - self.seen
        self.seen = now
        missed = self.broker.plane.counters.dropped.get(Drop.NO_SUBSCRIBERS, 0)
        self.missed += missed - self.seen_missed
        self.seen_missed = missed

    def close(self, to_ms: int, period: Callable[[int, int], Period]) -> None:
        """Make an event of what is carried, unless too many wait already."""
        if len(self.unwritten) >= _UNWRITTEN:
            return
        if self.carried:
            closed = period(self.from_ms, to_ms)
            self.unwritten.append(analytics.usage_counted(self.tenant_id, closed, self.carried))
            self.carried = Metered()
        self.from_ms = to_ms

    def take_missed(self) -> int:
        missed, self.missed = self.missed, 0
        return missed


def _read(broker: TenantBroker) -> Metered:
    counters = broker.plane.counters
    return Metered(
        messages_in=sum(counters.messages_received()),
        messages_out=sum(counters.messages_delivered()),
        blocks_in=counters.blocks_received,
        blocks_out=counters.blocks_delivered,
        bytes_in=counters.bytes_received,
        bytes_out=counters.bytes_sent,
        connection_ms=broker.allowance.connection_time.held_ms(),
        fanout=counters.fanout,
    )
