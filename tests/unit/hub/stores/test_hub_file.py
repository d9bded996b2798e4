"""`hub.json`: what a start waits for, then the addresses."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from iothub.base.errors import UnavailableError
from iothub.config.datadir import DataDir
from iothub.hub.stores.hub_file import HubFile


def test_file_says_what_the_start_waits_for_and_then_where_the_hub_listens(tmp_path: Path) -> None:
    data_dir = DataDir(tmp_path)
    hub_file = HubFile(data_dir, "0.1.0", "plain", 12.5)
    facts = {"pid": os.getpid(), "version": "0.1.0", "twin": "plain", "started": 12.5}

    hub_file.note_start("waiting for Kafka: no answer yet")
    assert data_dir.read_hub() == {**facts, "starting": "waiting for Kafka: no answer yet"}
    hub_file.note_http({"http": "127.0.0.1:8080"})
    hub_file.note_start("")
    assert data_dir.read_hub() == {**facts, "http": "127.0.0.1:8080", "starting": "sessions are being loaded"}
    hub_file.note_ready({"tcp": "127.0.0.1:1883"})
    hub_file.note_start("waiting for Kafka: too late")

    assert data_dir.read_hub() == {**facts, "tcp": "127.0.0.1:1883"}


def test_start_goes_on_when_it_cannot_say_what_it_waits_for(tmp_path: Path) -> None:
    """Nothing depends on it; but the addresses must be there."""
    hub_file = HubFile(DataDir(tmp_path / "gone"), "0.1.0", "plain", 12.5)

    hub_file.note_start("")

    with pytest.raises(UnavailableError):
        hub_file.note_ready({})


def test_start_after_a_kill_says_so(tmp_path: Path) -> None:
    """A stop removes the file; what is there before a start was left behind."""
    data_dir = DataDir(tmp_path)
    hub_file = HubFile(data_dir, "0.1.0", "plain", 12.5)
    with capture_logs() as first:
        hub_file.report_last_run()
    hub_file.note_ready({})
    data_dir.write_heartbeat()
    os.utime(data_dir.heartbeat_file, (1_800_000_000, 1_800_000_000))

    with capture_logs() as after_kill:
        hub_file.report_last_run()

    assert first == []
    assert [(line["log_level"], line["pid"], line["last_seen"]) for line in after_kill] == [
        ("warning", os.getpid(), "2027-01-15T08:00:00Z")
    ]
    assert "did not stop cleanly" in after_kill[0]["event"]
