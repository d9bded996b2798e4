"""Damaged records of the stores: counted once each, logged, with one alarm for a store."""

from __future__ import annotations

import pytest

from iothub_services import damaged
from iothub_services.damaged import DamagedRecords


@pytest.fixture
def alarms() -> list[tuple[str, str]]:
    return []


@pytest.fixture
def records(alarms: list[tuple[str, str]]) -> DamagedRecords:
    return DamagedRecords(lambda word, text: alarms.append((word, text)))


def test_first_record_of_each_store_has_the_alarm(records: DamagedRecords, alarms: list[tuple[str, str]]) -> None:
    records("events", "0:3", "not JSON")
    records("events", "0:4", "not UTF-8")
    records("state", "tenant id 7, client 'c'", "not JSON")

    assert alarms == [("events_damaged", "0:3: not JSON"), ("state_damaged", "tenant id 7, client 'c': not JSON")]
    assert records.counts() == {"events": 2, "state": 1}


def test_record_that_is_read_again_counts_once(records: DamagedRecords, alarms: list[tuple[str, str]]) -> None:
    """By a follower beside the state service, or by a start that a server holds up."""
    for _ in range(3):
        records("events", "0:3", "not JSON")

    assert (records.counts(), len(alarms)) == ({"events": 1}, 1)


def test_memory_of_what_was_counted_has_an_end(records: DamagedRecords, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond it a record counts each time: the count is never too low."""
    monkeypatch.setattr(damaged, "_REMEMBERED", 2)
    for _ in range(2):
        for key in ("0:1", "0:2", "0:3"):
            records("events", key, "why")

    assert records.counts() == {"events": 4}


def test_rebuilt_record_is_counted_and_no_alarm(
    records: DamagedRecords, alarms: list[tuple[str, str]], capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is lost of it; the next one that is lost has the alarm."""
    records("state", "tenant id 7, client 'c'", "not JSON", is_rebuilt=True)

    assert (records.counts(), alarms) == ({"state": 1}, [])
    assert "damaged record rebuilt from the log" in capsys.readouterr().err

    records("state", "tenant id 7, client 'd'", "not JSON")
    assert [word for word, _ in alarms] == ["state_damaged"]
