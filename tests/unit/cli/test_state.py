"""`iothub state verify`: the states against the log, from its beginning or from a checkpoint, whatever the drivers."""

from __future__ import annotations

import sqlite3
from contextlib import nullcontext

import pytest

from iothub.base.clock import SystemClock
from iothub.cli import state as state_command
from iothub.cli import stores
from iothub.cli.progress import Progress
from iothub.config.datadir import DataDir
from iothub.records import events
from iothub.records.events import Event, Subject
from iothub.testing.checkpoint_contract import pointer_to
from iothub_services.hbase import from_settings
from iothub_services.hbase.tables import Tables
from iothub_services.sqlite.database import open_database
from iothub_services.state.hbase.store import HBaseStates
from iothub_services.state.port import StateWrite
from iothub_services.state.service import StateService
from iothub_services.state.sqlite.checkpoints import SCHEMA, SqliteCheckpoints
from tests.support.hbase.timed_gateway import GatewayCaller, TimedGateway
from tests.support.hubs.left_behind import left_behind
from tests.support.in_process.command import Cli


def report(name: str, text: str) -> None:
    raise AssertionError((name, text))


def created(client_id: str, epoch: int = 1) -> Event:
    subject = Subject(7, client_id, epoch, 100)
    return events.session_created(subject, device="d", queue_id=9, protocol_version=5, session_expiry_s=60)


@pytest.fixture
def busy(acme: Cli) -> Cli:
    """Three sessions; the states have two of them."""
    with left_behind(DataDir(acme.data_dir)) as written:
        written.log.append([created("a"), created("b")])
        StateService(written.log, written.states, report).load()
        written.log.append([created("c")])
    return acme


def spoil(cli: Cli, client_id: str) -> None:
    with sqlite3.connect(cli.data_dir / "state.db") as connection:
        connection.execute(
            "UPDATE session SET record = CAST(replace(record, '\"epoch\":1', '\"epoch\":4') AS BLOB) WHERE client_id = ?",
            (client_id,),
        )


def make_checkpoint(cli: Cli) -> None:
    """Do what a job will do, with what the states have."""
    with stores.reading_states(DataDir(cli.data_dir)) as states:
        assert states is not None
        rows, offsets = list(states.load()), states.applied_offsets()
    path = DataDir(cli.data_dir).checkpoints
    checkpoints = SqliteCheckpoints(open_database(path, SCHEMA, SystemClock(), report))
    checkpoints.write(5, rows)
    assert checkpoints.move(None, pointer_to(5, rows, offsets))
    checkpoints.close()


def test_verify_finds_nothing_where_all_is_well(busy: Cli) -> None:
    """What the states lack comes with the next start."""
    assert busy("state", "verify", "-o", "json").json == {
        "from": "the beginning of the log",
        "events": 3,
        "damaged": 0,
        "damage": [],
        "sessions": 3,
        "older_than_log": 0,
        "different": 0,
        "differences": [],
    }


def test_verify_names_what_differs_and_ends_with_1(busy: Cli) -> None:
    """Not more of them than one wants to read."""
    spoil(busy, "a")
    spoil(busy, "b")

    result = busy("state", "verify", "--limit", "1", "--json", code=1)

    assert result.json["different"] == 2
    assert result.json["differences"] == ["7/a: stored state differs from the log (epoch)"]
    assert "2 of 3 sessions differ from the log: 7/a" in result.err


def test_verify_counts_and_names_damaged_events_and_ends_with_1(busy: Cli) -> None:
    """As `events verify` does; the states had seen one of them while it was whole, so that one is a difference, too."""
    with sqlite3.connect(busy.data_dir / "events.db") as connection:
        connection.execute("UPDATE session_event SET value = CAST('damaged' AS BLOB) WHERE offset = 3")

    result = busy("state", "verify", "-o", "json", code=1)

    assert (result.json["damaged"], result.json["different"]) == (1, 0)
    assert result.json["damage"] == ["event log, offset 3: damaged event (it is not JSON)"]
    assert "the states match the log, but 1 damaged event passed over: event log, offset 3" in result.err

    with sqlite3.connect(busy.data_dir / "events.db") as connection:
        connection.execute("UPDATE session_event SET value = CAST('damaged' AS BLOB) WHERE offset = 1")
    result = busy("state", "verify", "--limit", "1", "-o", "json", code=1)
    assert (result.json["damaged"], result.json["different"], len(result.json["damage"])) == (2, 1, 1)
    assert "1 of 2 sessions differ from the log: 7/a: stored, but not in the log" in result.err


def test_verify_begins_from_the_checkpoint_unless_told_otherwise(busy: Cli) -> None:
    """It is quicker; `--full` trusts the log alone."""
    make_checkpoint(busy)

    quick = busy("state", "verify", "-o", "json").json
    full = busy("state", "verify", "--full", "-o", "json").json

    assert (quick["from"], quick["events"], quick["sessions"]) == ("checkpoint 5", 1, 3)
    assert (full["from"], full["events"], full["sessions"]) == ("the beginning of the log", 3, 3)


def test_verify_says_why_a_checkpoint_cannot_be_used(busy: Cli) -> None:
    make_checkpoint(busy)
    with sqlite3.connect(DataDir(busy.data_dir).checkpoints) as connection:
        connection.execute("DELETE FROM checkpoint WHERE client_id = 'b'")

    result = busy("state", "verify", "-o", "json")

    assert "checkpoint 5 has 1 rows with checksum" in result.err
    assert result.err.rstrip().endswith(": reading the whole log")
    assert result.json["from"] == "the beginning of the log"


def test_verify_says_how_far_it_is(busy: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal, and in a log that somebody watches."""
    seen: list[tuple[int, int]] = []

    class Noting(Progress):
        def __call__(self, done: int, of: int) -> None:
            seen.append((done, of))

    monkeypatch.setattr(state_command, "Progress", Noting)
    busy("state", "verify")

    assert seen == [(1, 3), (2, 3), (3, 3)]


def test_states_before_the_first_hub_are_not_there(cli: Cli) -> None:
    assert "there are no session states yet: the first" in cli("state", "verify", code=3).err


def test_verify_compares_states_on_hbase(busy: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the driver; a damaged row is a difference."""
    tables = Tables("iothub")
    gateway = TimedGateway(tables.state, tables.checkpoints)
    with stores.reading_states(DataDir(busy.data_dir)) as states:
        assert states is not None
        rows = list(states.load())
    HBaseStates(GatewayCaller(gateway), tables).apply((2,), [StateWrite(*row) for row in rows])

    monkeypatch.setattr(from_settings, "direct_caller", lambda _settings: nullcontext(GatewayCaller(gateway)))
    with (busy.data_dir / "iothub.toml").open("a") as file:
        file.write('\n[state]\ndriver = "hbase"\n[hbase]\nthrift = ["127.0.0.1:9090"]\n')

    assert busy("state", "verify", "-o", "json").json["different"] == 0

    gateway.tables[tables.state][b"\0\0\0\7a"][b"s:r"] = (b"\x02" + rows[0].record, 1)
    result = busy("state", "verify", "--json", code=1)
    assert (result.json["sessions"], result.json["differences"]) == (3, ["7/a: damaged session state (it is not JSON)"])
