"""Records in Redis: found by another hub, never older than what that has seen, never anybody else's, never needed."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from iothub.testing.clock import ManualClock
from iothub_services.auth.directory import StoreDownError
from iothub_services.auth.port import DeviceRecord, TenantRecord, TenantState
from iothub_services.auth.shared import NEGATIVE_TTL_S
from tests.support.in_process.shared_cache import CACHE_S, Accounts, DictRedis, Hub

ACME = TenantRecord(1, "acme")
DEV = DeviceRecord("dev1", "h1$old", id=1)
CHANGED = DeviceRecord("dev1", "h1$new", id=1)
STEPS = ("change", "look", "ask", "ask", "read", "sql", "redis", "redis")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def accounts() -> Accounts:
    made = Accounts()
    made.add(ACME, DEV)
    return made


@pytest.fixture
def redis() -> DictRedis:
    return DictRedis()


@pytest.fixture
def warm(accounts: Accounts, redis: DictRedis, clock: ManualClock) -> Hub:
    """A hub that has asked for everybody."""
    hub = Hub(accounts, redis, clock)
    hub.tenant("acme")
    hub.tenant("nobody")
    hub.device(ACME, "dev1")
    hub.device(ACME, "nobody")
    accounts.questions.clear()
    return hub


@pytest.fixture
def cold(warm: Hub, accounts: Accounts, redis: DictRedis, clock: ManualClock) -> Hub:
    """One that was started after that."""
    assert warm
    return Hub(accounts, redis, clock)


def test_hub_with_a_cold_memory_asks_no_sql(cold: Hub, accounts: Accounts) -> None:
    """Those that are there, and those that are not; from then on its own memory has them."""
    assert cold.tenant("acme") == [ACME]
    assert cold.tenant("nobody") == [None]
    assert cold.device(ACME, "dev1") == [DEV]
    assert cold.device(ACME, "nobody") == [None]
    assert cold.device(ACME, "dev1") == [DEV]
    assert accounts.questions == []
    assert cold.shared.results()["hit"] == 4


def test_keys_name_installation_form_and_whose_record_it_is(warm: Hub, redis: DictRedis) -> None:
    """So that they can be found with redis-cli."""
    assert warm
    kinds = sorted((key.split(b":")[:3], key.split(b":")[4:]) for key in redis.entries)

    assert all(head == [b"iothub", b"ab", b"auth"] for head, _ in kinds)
    assert [tail for _, tail in kinds] == [
        [b"d", b"1", b"dev1"],
        [b"d", b"1", b"nobody"],
        [b"t", b"acme"],
        [b"t", b"nobody"],
    ]


def test_answers_that_somebody_is_unknown_are_kept_shorter(warm: Hub, redis: DictRedis) -> None:
    """Made-up names must not fill Redis."""
    assert warm
    ages = {key.rsplit(b":", 1)[1]: age for key, age in redis.ages_ms.items()}

    assert ages[b"dev1"] == 86_400_000
    assert ages[b"nobody"] == int(NEGATIVE_TTL_S * 1000)


def test_changed_device_is_read_anew_without_a_delete(warm: Hub, cold: Hub, accounts: Accounts) -> None:
    """The hub that was not told puts the old one again; nobody who has seen the change takes it."""
    accounts.change_device(1, "dev1", CHANGED)
    cold.look()

    assert cold.device(ACME, "dev1") == [CHANGED]
    assert cold.shared.results()["stale"] == 1
    warm.look()
    accounts.questions.clear()
    assert warm.device(ACME, "dev1") == [CHANGED]
    assert accounts.questions == []  # the cold one has put it, as of the change


def test_device_that_comes_is_not_taken_for_absent(cold: Hub, accounts: Accounts) -> None:
    accounts.change_device(1, "nobody", DEV)
    cold.look()

    assert cold.device(ACME, "nobody") == [DEV]


def test_tenant_that_comes_is_not_taken_for_absent(cold: Hub, accounts: Accounts) -> None:
    accounts.change_tenant(TenantRecord(2, "nobody"))
    cold.look()

    assert cold.tenant("nobody") == [TenantRecord(2, "nobody")]


def test_suspension_is_applied_at_the_next_look(cold: Hub, accounts: Accounts) -> None:
    suspended = TenantRecord(1, "acme", TenantState.SUSPENDED, version=2)
    accounts.change_tenant(suspended)
    cold.look()

    assert cold.tenant("acme") == [suspended]


def test_change_while_redis_answers_is_not_overtaken(cold: Hub, accounts: Accounts, redis: DictRedis) -> None:
    """The answer was on its way when the hub heard of the change."""
    redis.is_held = True
    asked = cold.device(ACME, "dev1")
    accounts.change_device(1, "dev1", CHANGED)
    cold.look()

    redis.is_held = False
    redis.answer()

    assert asked == [CHANGED]


def test_no_order_of_events_gives_an_old_record_to_who_asks_after_the_look() -> None:
    """Two hubs whose looks, questions to SQL and to Redis go as they like, late ones in any order."""
    for seed in range(500):
        random = Random(seed)
        asked = any_course([(random.choice(STEPS), random.randrange(2)) for _ in range(40)])

        assert all(int(answer[0].credential) >= least for least, answer in asked), seed


def any_course(steps: list[tuple[str, int]]) -> list[tuple[int, list[Any]]]:
    """Go these steps, each at one of two hubs; return what was known at each question, and its answer: numbers of changes."""
    accounts, redis = Accounts(), DictRedis()
    accounts.add(ACME, replace(DEV, credential="0"))
    hubs = [Hub(accounts, redis, ManualClock()) for _ in range(2)]
    redis.is_held = hubs[0].threads.is_held = hubs[1].threads.is_held = True
    changes, known, asked = 0, [0, 0], list[tuple[int, list[Any]]]()
    for step, number in steps:
        hub = hubs[number]
        if step == "change":
            changes += 1
            accounts.change_device(1, "dev1", replace(DEV, credential=str(changes)))
        elif step == "look":
            hub.look()
            known[number] = changes
        elif step == "ask":
            asked.append((known[number], hub.device(ACME, "dev1")))
        elif step == "read" and hub.threads.calls:
            hub.threads.read(-number)
        elif step == "sql" and hub.threads.calls:
            hub.threads.finish(-number)
        elif step == "redis" and redis.held:
            redis.answer(-number)
    while redis.held or hubs[0].threads.calls or hubs[1].threads.calls:
        for answers, answer in ((redis.held, redis.answer), *((hub.threads.calls, hub.threads.finish) for hub in hubs)):
            if answers:
                answer()
    return asked


def test_old_answer_of_sql_is_put_as_of_its_question(cold: Hub, accounts: Accounts, redis: DictRedis) -> None:
    """Read before a change, written after it: as old as it is, so it harms nobody who has seen the change."""
    redis.entries.clear()
    redis.is_held = True
    asked = cold.device(ACME, "dev1")
    redis.answer()  # a miss; SQL has answered, the entry waits
    accounts.change_device(1, "dev1", CHANGED)
    cold.look()
    redis.is_held = False
    redis.answer()

    assert asked == [DEV]  # to a question from before; the authenticator asks again when it sees the change
    assert cold.device(ACME, "dev1") == [CHANGED]


def test_forged_entry_is_ignored_and_noticed(cold: Hub, accounts: Accounts, redis: DictRedis) -> None:
    """Writing to Redis grants nobody access."""
    for key, octets in redis.entries.items():
        redis.entries[key] = octets[:-1] + b"x"

    assert cold.device(ACME, "dev1") == [DEV]
    assert accounts.questions == ["1/dev1"]
    assert cold.shared.results()["forged"] == 1
    assert cold.shared.is_forged_lately


def test_alarm_for_forged_entries_ends_by_itself(cold: Hub, redis: DictRedis, clock: ManualClock) -> None:
    """Minutes after the last one."""
    redis.entries = dict.fromkeys(redis.entries, b"x" * 64)
    cold.device(ACME, "dev1")

    clock.advance(301.0)

    assert not cold.shared.is_forged_lately


def test_hub_with_another_pepper_takes_nothing(
    accounts: Accounts, redis: DictRedis, warm: Hub, clock: ManualClock
) -> None:
    assert warm
    other = Hub(accounts, redis, clock, b"q" * 32)

    assert other.device(ACME, "dev1") == [DEV]
    assert accounts.questions == ["1/dev1"]


def test_without_redis_sql_answers(cold: Hub, accounts: Accounts, redis: DictRedis) -> None:
    """Down, flushed, or both: nobody is accepted or refused wrongly."""
    redis.is_down = True
    assert cold.device(ACME, "dev1") == [DEV]
    redis.is_down = False
    redis.entries.clear()
    assert cold.device(ACME, "nobody") == [None]

    assert accounts.questions == ["1/dev1", "1/nobody"]
    assert cold.shared.results()["failed"] == 1


def test_without_sql_redis_answers_as_long_as_memory_would(cold: Hub, accounts: Accounts, clock: ManualClock) -> None:
    """The changes cannot be read any more; what was true at the last look is used for `auth.cache`, and no longer."""
    accounts.is_down = True
    clock.advance(CACHE_S - 1)
    assert cold.device(ACME, "dev1") == [DEV]

    clock.advance(1.5)  # memory must not have it longer for having heard of it late

    assert isinstance(cold.device(ACME, "dev1")[0], StoreDownError)
    assert isinstance(cold.device(ACME, "nobody")[0], StoreDownError)


def test_answer_that_redis_kept_to_itself_for_long_is_not_used(
    cold: Hub, accounts: Accounts, redis: DictRedis, clock: ManualClock
) -> None:
    """Nobody knows any more whether it is true: the changes could not be read for longer than memory would have it."""
    redis.is_held = True
    asked = cold.device(ACME, "dev1")
    accounts.is_down = True
    clock.advance(CACHE_S + 1)

    redis.answer()

    assert isinstance(asked[0], StoreDownError)


def test_one_question_to_redis_at_a_time(cold: Hub, redis: DictRedis) -> None:
    """A fleet of one account is one question."""
    redis.is_held = True
    redis.asked.clear()
    answers = [cold.device(ACME, "dev1") for _ in range(50)]
    redis.is_held = False
    redis.answer()

    assert answers == [[DEV]] * 50
    assert redis.asked == ["GET"]


def test_huge_record_is_not_kept(accounts: Accounts, redis: DictRedis, clock: ManualClock) -> None:
    """It would be read for every cold hub's look-up; SQL has it."""
    accounts.add(TenantRecord(3, "great", limits="x" * 300_000))
    Hub(accounts, redis, clock).tenant("great")

    assert redis.entries == {}


def test_accounts_without_a_change_share_nothing(redis: DictRedis, clock: ManualClock) -> None:
    """There is no line that a record could be true as of."""
    accounts = Accounts()
    accounts.log.clear()
    accounts.add(ACME, DEV)

    assert Hub(accounts, redis, clock).device(ACME, "dev1") == [DEV]
    assert redis.entries == {}
