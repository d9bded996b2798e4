"""Words of stores become alarms with a subject, and end when the store says so."""

from __future__ import annotations

import pytest

from iothub.hub.stores.store_alarms import StoreAlarms
from iothub.testing.clock import ManualClock
from iothub_services.metrics.alarms import AlarmName, Alarms
from iothub_services.store_process.connection import AWAY


@pytest.fixture
def alarms() -> Alarms:
    return Alarms(ManualClock())


def raised(alarms: Alarms) -> list[tuple[AlarmName, str]]:
    return [(alarm.name, alarm.subject) for alarm in alarms.active()]


def test_failing_store_is_an_alarm_until_it_works_again(alarms: Alarms) -> None:
    store_alarms = StoreAlarms(alarms)
    store_alarms("queues_failing", "queues.db: disk I/O error")

    assert raised(alarms) == [(AlarmName.STORE_FAILED, "queues")]
    store_alarms("queues_failing", "")
    assert raised(alarms) == []


@pytest.mark.parametrize("text", ["queues.db: database or disk is full", "write: No space left on device"])
def test_full_disk_has_an_alarm_of_its_own(alarms: Alarms, text: str) -> None:
    store_alarms = StoreAlarms(alarms)
    store_alarms("queues_failing", text)

    assert raised(alarms) == [(AlarmName.DISK_FULL, "queues")]
    store_alarms("queues_failing", "")
    assert raised(alarms) == []


def test_each_store_has_its_own_alarm(alarms: Alarms) -> None:
    store_alarms = StoreAlarms(alarms)
    store_alarms("queues_failing", "disk I/O error")
    store_alarms("retained_failing", "disk I/O error")
    store_alarms("queues_failing", "")

    assert raised(alarms) == [(AlarmName.STORE_FAILED, "retained")]


def test_store_process_that_is_away_is_one_alarm_for_all_stores(alarms: Alarms) -> None:
    """It ends when its supervisor and every store that has missed it say so; its text is the supervisor's."""
    heard: list[bool] = []
    alarms.listen(lambda _alarm, is_raised: heard.append(is_raised))
    store_alarms = StoreAlarms(alarms)
    for word in ("queues_failing", "follower_failing"):
        store_alarms(word, f"{AWAY} since {word}: Connection reset by peer")
    store_alarms.store_process_changed(f"{AWAY}: the process store ended: signal SIGKILL")
    store_alarms("queues_failing", f"{AWAY}: it is not reached")

    assert raised(alarms) == [(AlarmName.STORE_FAILED, "store process")]
    assert alarms.active()[0].detail.endswith("signal SIGKILL")
    store_alarms("queues_failing", "")
    store_alarms.store_process_changed("")
    assert raised(alarms) == [(AlarmName.STORE_FAILED, "store process")]
    store_alarms("follower_failing", "")
    assert (raised(alarms), heard) == ([], [True, False])


def test_store_that_fails_once_its_process_is_back_has_its_own_alarm(alarms: Alarms) -> None:
    store_alarms = StoreAlarms(alarms)
    store_alarms("queues_failing", f"{AWAY}: it is not reached")
    store_alarms("queues_failing", "disk I/O error")

    assert raised(alarms) == [(AlarmName.STORE_FAILED, "queues")]


@pytest.mark.parametrize(
    "word", ["queues_corrupt", "queues.journal", "event_log_lost", "state_incomplete", "queue_lost"]
)
def test_damage_is_reported_with_what_was_found(alarms: Alarms, word: str) -> None:
    StoreAlarms(alarms)(word, "3 rows saved")

    assert raised(alarms) == [(AlarmName.STORE_CORRUPT, word)]
    assert alarms.active()[0].detail == "3 rows saved"


def test_checkpoint_that_was_of_no_use_is_no_damaged_store(alarms: Alarms) -> None:
    """It can be made again: nobody needs a backup."""
    store_alarms = StoreAlarms(alarms)
    store_alarms("checkpoint_unused", "checkpoint 7: it is of another log; the start continues from the session states")

    assert raised(alarms) == [(AlarmName.CHECKPOINT_UNUSED, "")]
    assert "backup" not in alarms.active()[0].name.advice
    store_alarms("checkpoint_unused", "")
    assert raised(alarms) == []


def test_damaged_record_is_an_alarm_of_its_own(alarms: Alarms) -> None:
    """No file was put aside."""
    StoreAlarms(alarms)("state_damaged", "tenant id 7, client 'c': damaged session state (it is not JSON)")

    assert raised(alarms) == [(AlarmName.RECORD_DAMAGED, "state")]


def test_store_that_the_hub_lets_go_of_raises_nothing(alarms: Alarms) -> None:
    """It fails of the end; damage is told all the same, and what was raised stays."""
    store_alarms = StoreAlarms(alarms)
    store_alarms("queues_failing", "no answer")
    store_alarms.end()
    store_alarms("state_failing", "HBase's client is closed")
    store_alarms("queues_corrupt", "3 rows saved")

    assert raised(alarms) == [(AlarmName.STORE_FAILED, "queues"), (AlarmName.STORE_CORRUPT, "queues_corrupt")]


def test_damage_that_is_found_later_is_in_the_text(alarms: Alarms) -> None:
    store_alarms = StoreAlarms(alarms)
    store_alarms("queues.journal", "segment 1 has broken records")
    store_alarms("queues.journal", "segment 1 has broken records, segment 3 has broken records")

    (alarm,) = alarms.active()
    assert (alarm.name, alarm.subject, alarm.detail) == (
        AlarmName.STORE_CORRUPT,
        "queues.journal",
        "segment 1 has broken records, segment 3 has broken records",
    )
