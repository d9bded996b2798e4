"""Alarms are raised once, cleared once, and told to everybody who listens."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from iothub.testing.clock import ManualClock
from iothub_services.metrics.alarms import Alarm, AlarmName, Alarms


def test_alarm_is_raised_once_and_cleared_once() -> None:
    clock = ManualClock(wall=100.0)
    alarms = Alarms(clock)
    heard: list[tuple[str, bool]] = []
    alarms.listen(lambda alarm, is_raised: heard.append((alarm.name.word, is_raised)))

    alarms.raise_(AlarmName.DISK_LOW, detail="1 GiB left")
    clock.advance(100.0)
    alarms.raise_(AlarmName.DISK_LOW, detail="still")

    assert alarms.active() == [Alarm(AlarmName.DISK_LOW, "", "1 GiB left", 100.0)]
    alarms.clear(AlarmName.DISK_LOW)
    alarms.clear(AlarmName.DISK_LOW)
    assert heard == [("disk_low", True), ("disk_low", False)]
    assert alarms.active() == []


def test_subjects_are_told_apart() -> None:
    alarms = Alarms(ManualClock())

    alarms.raise_(AlarmName.STORE_FAILED, subject="queues")
    alarms.raise_(AlarmName.STORE_FAILED, subject="retained")
    alarms.clear(AlarmName.STORE_FAILED, subject="queues")

    assert [alarm.subject for alarm in alarms.active()] == ["retained"]
    assert alarms.counts() == {"warning": 0, "critical": 1}


def test_condition_sets_and_clears() -> None:
    alarms = Alarms(ManualClock())

    alarms.set(AlarmName.MEMORY_HIGH, True)
    alarms.set(AlarmName.MEMORY_HIGH, False)

    assert alarms.counts() == {"warning": 0, "critical": 0}


def test_every_alarm_says_what_to_do() -> None:
    assert all(name.advice.endswith(".") for name in AlarmName)
    assert len({name.word for name in AlarmName}) == len(AlarmName)


@pytest.mark.parametrize("name", AlarmName)
def test_log_level_of_an_alarm_is_that_of_its_severity(name: AlarmName) -> None:
    """Whoever filters the log by level must not miss what `status` calls critical."""
    with capture_logs() as lines:
        Alarms(ManualClock()).raise_(name, subject="s", detail="d")

    (line,) = lines
    expected = {"warning": "warning", "critical": "error"}[name.severity]
    assert (line["log_level"], line["severity"], line["alarm"]) == (expected, name.severity, name.word)
