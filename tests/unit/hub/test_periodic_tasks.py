"""What one hub does regularly, task by task."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from iothub.base.errors import BackendError
from iothub.hub.periodic_tasks import API_SILENT_S, TAIL_SLICE, AccountChanges, MachineCheck, QueueTails, RetainedExpiry
from iothub.net.descriptors import Descriptors
from iothub.testing.clock import ManualClock
from iothub_services.metrics.alarms import AlarmName, Alarms
from tests.support.in_process.control_harness import now


def brokers(**of_tenant_7: Any) -> Any:
    broker = SimpleNamespace(**of_tenant_7)

    class Brokers(list[Any]):
        def present(self, tenant_id: int) -> Any:
            return broker if tenant_id == 7 else None

    return Brokers([broker])


class Accounts:
    """Accounts that answer, or do not."""

    def __init__(self) -> None:
        self.error: BackendError | None = None

    async def follow_changes(self) -> None:
        if self.error is not None:
            raise self.error

    refresh = follow_changes


def test_accounts_that_do_not_answer_are_an_alarm_until_they_do() -> None:
    accounts, alarms = Accounts(), Alarms(ManualClock())
    changes = AccountChanges(cast("Any", accounts), cast("Any", accounts), cast("Any", None), alarms, None)
    accounts.error = BackendError("away", retryable=True)

    with pytest.raises(BackendError):
        now(changes.run_once())
    assert [(alarm.name, alarm.detail) for alarm in alarms.active()] == [(AlarmName.ACCOUNTS_UNREACHABLE, "away")]
    accounts.error = None
    now(changes.run_once())

    assert list(alarms.active()) == []


def test_only_sessions_that_have_caught_up_look_at_their_tails() -> None:
    """The others read on anyway; a few hundred queues are one question.

    A queue without a tail is lost if it is not where writes go, either.
    """

    def session(queue_id: int, **facts: Any) -> Any:
        usual = {"is_persistent": True, "connection": object(), "is_behind": False}
        return SimpleNamespace(queue_id=queue_id, **(usual | facts))

    online = [session(number) for number in range(TAIL_SLICE + 1)]
    others = [session(9001, is_persistent=False), session(9002, connection=None), session(9003, is_behind=True)]
    asked: list[list[int]] = []
    existing: list[list[int]] = []
    lost: list[Any] = []
    announced: list[tuple[Any, int]] = []

    class Queues:
        async def tails(self, queue_ids: list[int]) -> dict[int, int]:
            asked.append(queue_ids)
            return {queue_id: 5 for queue_id in queue_ids if queue_id not in (8, 9)}

        async def existing(self, queue_ids: list[int]) -> set[int]:
            existing.append(queue_ids)
            return {9}

    plane = SimpleNamespace(announce=lambda *args: announced.append(args))
    sessions = dict(enumerate([*online, *others]))
    present = brokers(plane=SimpleNamespace(sessions=SimpleNamespace(awake=sessions)))
    tails = QueueTails(cast("Any", Queues()), present, cast("Any", plane), lost.append)

    now(tails.run_once())

    assert [len(part) for part in asked] == [TAIL_SLICE, 1]
    assert announced == [(each, 5) for each in online if each.queue_id not in (8, 9)]
    assert (existing, lost) == ([[8, 9]], [online[8]])


def test_broker_hears_which_retained_messages_have_expired() -> None:
    """If it is there; the store has removed them either way."""
    gone: list[bytes] = []

    class Retained:
        async def expire(self, _now_ms: int, _count: int) -> list[tuple[int, bytes]]:
            return [(7, b"a"), (8, b"b")]

    present = brokers(retained=SimpleNamespace(expired=gone.append))

    now(RetainedExpiry(cast("Any", Retained()), present, ManualClock()).expire())

    assert gone == [b"a"]


def test_machine_short_of_memory_narrows_the_listeners() -> None:
    beats: list[str] = []
    narrow: list[bool] = []
    gate = SimpleNamespace(set_narrow=lambda *, is_narrow: narrow.append(is_narrow))
    watch = SimpleNamespace(sample=lambda: None, is_overloaded=True)
    parts: dict[str, Any] = {
        "data_dir": SimpleNamespace(
            write_heartbeat=lambda: beats.append("beat"), worker=0, read_api=lambda: None, read_api_restarts=dict
        ),
        "alarms": Alarms(ManualClock()),
        "watch": watch,
        "descriptors": Descriptors(1024, lambda: 40),
        "shared_records": None,
        "listeners": SimpleNamespace(gates=lambda: {"tcp": gate}),
    }
    check = MachineCheck(**parts)

    now(check.run_once())
    assert (narrow, beats) == ([True], ["beat"])
    watch.is_overloaded = False
    now(check.run_once())

    assert narrow == [True, False]


def test_clients_that_use_up_the_descriptors_are_an_alarm() -> None:
    descriptors, alarms = Descriptors(64, lambda: 40, own=40), Alarms(ManualClock())
    some: Any = SimpleNamespace
    check = MachineCheck(
        data_dir=some(write_heartbeat=lambda: None, worker=0, read_api=lambda: None, read_api_restarts=dict),
        alarms=alarms,
        watch=some(sample=lambda: None, is_overloaded=False),
        descriptors=descriptors,
        shared_records=None,
        listeners=some(gates=dict),
    )
    now(check.run_once())
    assert alarms.active() == []

    descriptors.clients = descriptors.servable
    now(check.run_once())
    (alarm,) = alarms.active()
    assert alarm.name is AlarmName.DESCRIPTORS_LOW
    assert alarm.detail == "8 connections, 8 possible with a limit of 64 file descriptors"

    descriptors.clients = 0
    now(check.run_once())
    assert alarms.active() == []


@pytest.mark.parametrize(("worker", "is_told"), [(0, True), (1, True), (2, False)])
def test_rest_api_that_does_not_run_is_an_alarm(worker: int, is_told: bool) -> None:
    """Of one worker, for all have one API."""
    note: dict[str, object] | None = {"cause": "its port is in use"}
    alarms, some = Alarms(ManualClock()), cast("Any", SimpleNamespace)
    check = MachineCheck(
        data_dir=some(write_heartbeat=lambda: None, worker=worker, read_api=lambda: note, read_api_restarts=dict),
        alarms=alarms,
        watch=some(sample=lambda: None, is_overloaded=False),
        descriptors=Descriptors(1024, lambda: 40),
        shared_records=None,
        listeners=some(gates=dict),
    )

    now(check.run_once())
    raised = [(alarm.name, alarm.detail) for alarm in alarms.active()]
    assert raised == ([(AlarmName.API_DOWN, "its port is in use")] if is_told else [])
    note = {"address": "http://127.0.0.1:8081"}
    now(check.run_once())

    assert alarms.active() == []


def test_rest_api_that_did_not_answer_is_an_alarm_for_a_while() -> None:
    noted = {"restarts": {"ended": 0, "silent": 1}, "silent_at": 1000.0}
    wall_s = [1000.0]
    alarms, some = Alarms(ManualClock()), cast("Any", SimpleNamespace)
    check = MachineCheck(
        data_dir=some(write_heartbeat=lambda: None, worker=0, read_api=lambda: None, read_api_restarts=lambda: noted),
        alarms=alarms,
        watch=some(sample=lambda: None, is_overloaded=False),
        descriptors=Descriptors(1024, lambda: 40),
        shared_records=None,
        listeners=some(gates=dict),
        wall=lambda: wall_s[0],
    )

    now(check.run_once())
    assert [alarm.name for alarm in alarms.active()] == [AlarmName.API_SILENT]

    wall_s[0] += API_SILENT_S
    now(check.run_once())
    assert alarms.active() == []
