"""Records from memory or store: one question at a time, bounded."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

import pytest
from twisted.internet.defer import Deferred, fail

from iothub_services.auth.directory import Directory, DirectorySettings, StoreDownError, TooManyWaitError
from iothub_services.auth.port import DeviceRecord, TenantRecord
from iothub_services.auth.shared import SharedRecords

ACME = TenantRecord(1, "acme")
BMCE = TenantRecord(2, "bmce")


class StoppedClock:
    def monotonic(self) -> float:
        return 1000.0

    def wall(self) -> float:
        return 1000.0


class EverybodyAccounts:
    """Every name exists."""

    def find_tenant(self, name: str) -> TenantRecord | None:
        return TenantRecord(len(name), name)

    def find_device(self, tenant_id: int, name: str) -> DeviceRecord | None:
        return DeviceRecord(name, f"of {tenant_id}")

    def find_devices(self, tenant_id: int, names: Collection[str]) -> dict[str, DeviceRecord]:
        return {name: DeviceRecord(name, f"of {tenant_id}") for name in names if name != "nobody"}


@dataclass
class Threads:
    calls: list[tuple[Callable[[], Any], Deferred[Any]]] = field(default_factory=list)

    def __call__(self, name: str, call: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Deferred[Any]:
        answer: Deferred[Any] = Deferred()
        self.calls.append((lambda: call(*args, **kwargs), answer))
        return answer

    def finish(self) -> None:
        call, answer = self.calls.pop(0)
        answer.callback(call())


def make(**settings: Any) -> tuple[Directory, Threads, list[str]]:
    threads = Threads()
    failures: list[str] = []
    directory = Directory(
        EverybodyAccounts(),
        threads,
        StoppedClock(),
        lambda call, error: failures.append(f"{call}: {error}"),
        DirectorySettings(**settings),
    )
    return directory, threads, failures


def begin(coroutine: Any) -> list[Any]:
    results: list[Any] = []
    Deferred.fromCoroutine(coroutine).addCallbacks(results.append, lambda failure: results.append(failure.value))
    return results


def test_same_question_is_asked_once() -> None:
    """A fleet of one account is one question."""
    directory, threads, _ = make()
    results = [begin(directory.device(ACME, "dev")) for _ in range(3)]

    assert len(threads.calls) == 1
    threads.finish()
    assert [result[0].name for result in results] == ["dev"] * 3


def test_tenants_do_not_share_devices() -> None:
    """The tenant is part of every key."""
    directory, threads, _ = make()
    first, second = begin(directory.device(ACME, "dev")), begin(directory.device(BMCE, "dev"))
    threads.finish()
    threads.finish()

    assert (first[0].credential, second[0].credential) == ("of 1", "of 2")
    assert begin(directory.device(BMCE, "dev"))[0].credential == "of 2"
    assert directory.hits == 1


def test_question_asked_before_a_change_is_not_joined_after_it() -> None:
    """Who asks after a change gets an answer from after the change."""
    directory, threads, _ = make()
    begin(directory.device(ACME, "dev"))
    directory.invalidate(1, "dev")
    begin(directory.device(ACME, "dev"))

    assert len(threads.calls) == 2


@pytest.mark.parametrize(
    "ask", [lambda directory: directory.tenant("acme"), lambda directory: directory.device(ACME, "dev")]
)
def test_question_is_joined_after_a_change_until_it_is_asked(ask: Callable[[Directory], Any]) -> None:
    """While others are imported, a fleet is no crowd of the same questions; nobody is given what was read before a change, and nobody keeps it."""
    directory, threads, _ = make(asked=1)
    begin(directory.device(BMCE, "first"))
    joined = [begin(ask(directory))]
    directory.invalidate(ACME.id, "dev")
    joined.append(begin(ask(directory)))
    threads.finish()  # now their question is asked
    directory.invalidate(ACME.id, "dev")
    late = begin(ask(directory))

    threads.finish()
    assert joined[0] == joined[1] != []
    assert late == begin(ask(directory)) == []
    threads.finish()
    assert late == joined[0] == begin(ask(directory))
    assert not threads.calls


def test_question_to_the_second_level_is_not_joined_after_a_change() -> None:
    """What it finds may be of before."""
    asked: list[str] = []

    class HangingShared(SharedRecords):
        def __init__(self) -> None:
            """Knows no Redis."""

        def tenant(self, name: str) -> Deferred[Any]:
            asked.append(name)
            return Deferred()

    directory, _, _ = make()
    directory._shared = HangingShared()
    begin(directory.tenant("acme"))
    begin(directory.tenant("acme"))
    directory.invalidate(ACME.id, None)
    begin(directory.tenant("acme"))

    assert asked == ["acme", "acme"]


def test_nothing_is_remembered_when_what_changed_is_not_known() -> None:
    """Neither what was known nor what was asked before."""
    directory, threads, _ = make()
    begin(directory.device(ACME, "dev"))
    threads.finish()
    begin(directory.device(ACME, "slow"))
    before = directory.stamp(1)

    directory.invalidate_all()
    threads.finish()

    assert directory.stamp(1) != before
    assert begin(directory.device(ACME, "dev")) == begin(directory.device(ACME, "slow")) == []


def test_waiting_questions_are_bounded_for_all_and_per_tenant() -> None:
    """A slow store and made-up names of one tenant leave room for others."""
    directory, threads, _ = make(loads=4, tenant_loads=2, name_loads=1, few_loads=1)
    for name in "ab":
        begin(directory.device(ACME, name))

    assert isinstance(begin(directory.device(ACME, "c"))[0], TooManyWaitError)
    assert begin(directory.device(BMCE, "c")) == []
    assert begin(directory.tenant("x")) == []
    assert isinstance(begin(directory.tenant("y"))[0], TooManyWaitError)
    assert isinstance(begin(directory.device(BMCE, "d"))[0], TooManyWaitError)
    threads.finish()
    assert begin(directory.device(BMCE, "d")) == []


def test_fleet_of_one_tenant_waits_for_a_cold_store_and_holds_up_nobody() -> None:
    """After a restart all come at once: none is refused, and a device of another tenant does not wait behind them."""
    directory, threads, _ = make()
    fleet = [begin(directory.device(ACME, f"dev{number}")) for number in range(5_000)]
    other = begin(directory.device(BMCE, "late"))

    for _ in range(6):  # those under way, then one of each tenant in turn
        threads.finish()

    assert other[0].name == "late"
    while threads.calls:
        threads.finish()
    assert [answer[0].name for answer in fleet] == [f"dev{number}" for number in range(5_000)]


def test_whoever_waits_is_told_when_the_store_is_gone() -> None:
    """All of them at once, however many: none of their answers is part of another's."""
    directory, threads, _ = make()
    fleet = [begin(directory.device(ACME, f"dev{number}")) for number in range(3_000)]
    directory._run = lambda *_: fail(OSError())  # type: ignore[assignment]

    while threads.calls:
        threads.calls.pop()[1].errback(OSError())

    assert {type(answer[0]) for answer in fleet} == {StoreDownError}


def test_questions_wait_in_front_of_the_pool() -> None:
    """What else is asked of the accounts, such as what has changed, does not wait behind a storm."""
    directory, threads, _ = make(asked=2)
    answers = [begin(directory.device(ACME, name)) for name in "abcd"]

    assert len(threads.calls) == 2
    for _ in range(4):
        threads.finish()
    assert [answer[0].name for answer in answers] == list("abcd")


def test_urgent_question_waits_for_no_other_and_is_never_one_too_many() -> None:
    """A revoked device is put out however many made-up names are being asked for."""
    directory, threads, _ = make(loads=2, tenant_loads=1, asked=1)
    begin(directory.tenant("made-up"))
    begin(directory.device(ACME, "dev"))

    tenant = begin(directory.tenant("acme", is_urgent=True))
    devices = begin(directory.devices(ACME, ("dev",)))

    assert len(threads.calls) == 3
    threads.calls.pop(0)
    threads.finish()
    threads.finish()
    assert (tenant[0].name, list(devices[0])) == ("acme", ["dev"])


def test_tenant_with_few_devices_gets_in_where_fleets_use_up_the_bound() -> None:
    directory, threads, _ = make(loads=2, tenant_loads=2, few_loads=1, asked=1)
    for number in range(2):
        begin(directory.device(ACME, f"dev{number}"))

    few = begin(directory.device(BMCE, "dev"))
    one_too_many = begin(directory.device(BMCE, "dev2"))
    while threads.calls:
        threads.finish()

    assert few[0].name == "dev"
    assert isinstance(one_too_many[0], StoreDownError)


def test_names_get_in_where_fleets_use_up_the_bound() -> None:
    """No tenant that the hub has not met gets in without its name."""
    directory, threads, _ = make(loads=2, tenant_loads=2, few_loads=1, asked=1)
    for number in range(2):
        begin(directory.device(ACME, f"dev{number}"))

    few, one_too_many = begin(directory.tenant("bmce")), begin(directory.tenant("other"))
    while threads.calls:
        threads.finish()

    assert few[0].name == "bmce"
    assert isinstance(one_too_many[0], TooManyWaitError)


def test_few_are_fewer_the_more_wait_and_never_more_than_twice_the_bound() -> None:
    """A store that hangs and made-up names of very many tenants do not fill the memory."""
    directory, _, _ = make(loads=256, tenant_loads=256)
    for number in range(256):
        begin(directory.device(ACME, f"dev{number}"))

    def let_in(tenant_id: int) -> int:
        tenant = TenantRecord(tenant_id, f"tenant{tenant_id}")
        return [begin(directory.device(tenant, f"dev{number}")) for number in range(65)].count([])

    assert [let_in(tenant_id) for tenant_id in range(2, 90)] == [64] + 4 * [16] + 16 * [4] + 64 * [1] + 3 * [0]
    assert isinstance(begin(directory.tenant("x"))[0], TooManyWaitError)


def test_change_while_a_question_waits_for_its_turn_is_in_its_answer() -> None:
    """It was asked behind the change: nobody asks again."""
    directory, threads, _ = make(asked=1)
    begin(directory.device(BMCE, "first"))
    waiting = begin(directory.device(ACME, "dev"))
    directory.invalidate(ACME.id, None)
    while threads.calls:
        threads.finish()

    again = begin(directory.device(ACME, "dev"))

    assert not threads.calls
    assert again == waiting


def test_change_while_a_tenant_by_name_waits_for_its_turn_is_in_its_answer() -> None:
    """As for a device."""
    directory, threads, _ = make(asked=1)
    begin(directory.device(BMCE, "first"))
    waiting = begin(directory.tenant("acme"))
    directory.invalidate(BMCE.id, None)
    while threads.calls:
        threads.finish()

    again = begin(directory.tenant("acme"))

    assert not threads.calls
    assert again == waiting


def test_absence_is_remembered_for_those_who_knock() -> None:
    directory, threads, _ = make()
    directory._accounts.find_device = lambda tenant_id, name: None  # type: ignore[method-assign]

    first = begin(directory.device(ACME, "dev"))
    threads.finish()

    assert first == begin(directory.device(ACME, "dev")) == [None]


def test_absence_is_not_remembered_for_urgent_questions() -> None:
    """A device that is made as soon as its predecessor is gone is let in at once."""
    directory, threads, _ = make()
    answers = begin(directory.devices(ACME, ("nobody",)))
    threads.finish()

    begin(directory.device(ACME, "nobody"))

    assert answers == [{}]
    assert len(threads.calls) == 1


def test_many_devices_are_one_question_for_those_that_memory_does_not_have() -> None:
    """And they are remembered, each for whoever asks for it alone."""
    directory, threads, _ = make()
    known = begin(directory.device(ACME, "known"))
    threads.finish()
    asked: list[Collection[str]] = []
    find = directory._accounts.find_devices
    directory._accounts.find_devices = lambda tenant_id, names: (asked.append(names), find(tenant_id, names))[1]  # type: ignore[method-assign,func-returns-value]

    answers = begin(directory.devices(ACME, ("known", "one", "two")))
    threads.finish()

    assert asked == [["one", "two"]]
    assert (answers[0]["known"], list(answers[0])) == (known[0], ["known", "one", "two"])
    assert begin(directory.device(ACME, "two")) == [answers[0]["two"]]
    assert not threads.calls


def test_many_devices_that_were_read_while_one_changed_are_not_remembered() -> None:
    directory, threads, _ = make()
    answers = begin(directory.devices(ACME, ("one", "two")))
    directory.invalidate(ACME.id, "one")
    threads.finish()

    begin(directory.device(ACME, "two"))

    assert len(answers[0]) == 2
    assert len(threads.calls) == 1


def test_many_devices_that_cannot_be_read_are_a_dead_store() -> None:
    directory, threads, failures = make()
    result = begin(directory.devices(ACME, ("one", "two")))
    threads.calls.pop()[1].errback(ValueError("half a row"))

    assert isinstance(result[0], StoreDownError)
    assert failures == ["accounts.devices: half a row"]


def test_any_error_of_a_driver_is_a_dead_store_and_is_told() -> None:
    """Garbage from the store lets nobody in and fails the look-up like a dead store."""
    directory, threads, failures = make()
    result = begin(directory.tenant("acme"))
    threads.calls.pop()[1].errback(ValueError("half a row"))

    assert isinstance(result[0], StoreDownError)
    assert "half a row" not in str(result[0])
    assert failures == ["accounts.tenant: half a row"]
    begin(directory.tenant("acme"))
    assert len(threads.calls) == 1
