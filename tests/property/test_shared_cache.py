"""Hubs that share a cache: whatever changes, whoever is late, whatever Redis loses, keeps or has put back by somebody, no answer is older than what
its hub had seen when it asked.
"""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from iothub.testing.clock import ManualClock
from iothub_services.auth.port import DeviceRecord, TenantRecord
from tests.support.in_process.shared_cache import Accounts, DictRedis, Hub
from tests.support.night import by_day

TENANTS = (TenantRecord(1, "acme"), TenantRecord(2, "bmce"))
DEVICES = ("dev1", "dev2")
HUBS = st.integers(0, 1)
SUBJECTS = st.sampled_from([(0, None), (1, None), *((number, name) for number in (0, 1) for name in DEVICES)])

Subject = tuple[int, str | None]


class TwoHubs(RuleBasedStateMachine):
    """Questions and answers in any order; the history says what each record was as of each change."""

    @initialize()
    def begin(self) -> None:
        self.clock = ManualClock()
        self.accounts = Accounts()
        self.redis = DictRedis()
        self.history: dict[Subject, list[tuple[int, object]]] = {}
        for number, tenant in enumerate(TENANTS):
            self.accounts.add(tenant)
            self.history[number, None] = [(0, tenant)]
            for name in DEVICES:
                self.history[number, name] = [(0, None)]
        self.hubs = [Hub(self.accounts, self.redis, self.clock) for _ in range(2)]
        self.open: list[tuple[Subject, int, list[Any]]] = []  # questions, and what their hub had seen
        self.past: list[tuple[bytes, bytes]] = []  # whatever was ever in Redis
        self.versions = 0

    # --- what is changed, and heard of

    @rule(subject=SUBJECTS, is_gone=st.booleans())
    def change(self, subject: Subject, is_gone: bool) -> None:
        number, name = subject
        self.versions += 1
        tenant_id = TENANTS[number].id
        record: TenantRecord | DeviceRecord | None
        if name is None:
            record = TenantRecord(tenant_id, TENANTS[number].name, version=self.versions)
            self.accounts.change_tenant(record)
        else:
            record = None if is_gone else DeviceRecord(name, f"h1${self.versions}", id=self.versions)
            self.accounts.change_device(tenant_id, name, record)
        self.history[subject].append((len(self.accounts.log), record))

    @rule(hub=HUBS)
    def look(self, hub: int) -> None:
        self.hubs[hub].look()

    @rule(hub=HUBS)
    def restart(self, hub: int) -> None:
        """With a cold memory; what was on its way goes on as a late writer."""
        self.hubs[hub] = Hub(self.accounts, self.redis, self.clock)
        self.hold(hub)

    # --- what is asked

    @rule(hub=HUBS, subject=SUBJECTS)
    def ask(self, hub: int, subject: Subject) -> None:
        asked = self.hubs[hub]
        number, name = subject
        answer = asked.tenant(TENANTS[number].name) if name is None else asked.device(TENANTS[number], name)
        self.open.append((subject, asked.seen, answer))

    def hold(self, hub: int) -> None:
        self.hubs[hub].threads.is_held = self.redis.is_held

    @rule(is_held=st.booleans())
    def wait(self, is_held: bool) -> None:
        """From now on SQL and Redis answer when they are told to."""
        self.redis.is_held = is_held
        for hub in range(2):
            self.hold(hub)

    @precondition(lambda self: self.redis.held)
    @rule(place=st.integers(0, 20))
    def answer_of_redis(self, place: int) -> None:
        self.redis.answer(place % len(self.redis.held))

    @rule(hub=HUBS, place=st.integers(0, 20))
    def answer_of_sql(self, hub: int, place: int) -> None:
        waiting = self.hubs[hub].threads
        if waiting.calls:
            waiting.finish(place % len(waiting.calls))

    # --- what happens to Redis

    @rule(is_down=st.booleans())
    def go(self, is_down: bool) -> None:
        self.redis.is_down = is_down

    @rule()
    def flush(self) -> None:
        self.redis.entries.clear()

    @precondition(lambda self: self.past)
    @rule(place=st.integers(0, 1000))
    def put_back(self, place: int) -> None:
        """A fail-over to a replica that was behind, or an intruder with a long memory."""
        key, octets = self.past[place % len(self.past)]
        self.redis.entries[key] = octets

    @precondition(lambda self: len(self.redis.entries) > 1)
    @rule(place=st.integers(0, 100))
    def swap(self, place: int) -> None:
        """An intruder who moves what he cannot make."""
        keys = sorted(self.redis.entries)
        one, other = keys[place % len(keys)], keys[(place + 1) % len(keys)]
        entries = self.redis.entries
        entries[one], entries[other] = entries[other], entries[one]

    # --- what must hold

    @invariant()
    def no_answer_is_older_than_what_its_hub_had_seen(self) -> None:
        for entry in self.redis.entries.items():
            if entry not in self.past[-50:]:
                self.past.append(entry)
        for subject, seen, answer in self.open:
            if answer:
                assert answer[0] in self._since(subject, seen), (subject, seen, answer, self.history[subject])
        self.open = [question for question in self.open if not question[2]]

    def _since(self, subject: Subject, seen: int) -> list[object]:
        """Return what the record was as of `seen`, and ever since."""
        changes = self.history[subject]
        first = max(place for place, (change, _) in enumerate(changes) if change <= seen)
        return [record for _, record in changes[first:]]


TwoHubs.TestCase.settings = settings(max_examples=by_day(40, 80), stateful_step_count=50, deadline=None)
TestTwoHubs = TwoHubs.TestCase
