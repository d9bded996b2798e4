"""`iothub doctor` as people and scripts see it."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path

from iothub.config.datadir import DataDir
from iothub.records import events
from iothub.records.events import Subject
from tests.support.hubs.left_behind import left_behind
from tests.support.in_process.answering import AnsweringHub
from tests.support.in_process.command import Cli, Result

ANY_PORT = b"config_version = 1\n[listeners.tcp]\nport = 0\n"


def test_hub_in_good_order_gives_zero(cli: Cli) -> None:
    """A line for each part, and a count at the end."""
    cli.data_dir.joinpath("iothub.toml").write_bytes(ANY_PORT)

    done = cli("doctor")

    assert done.code == 0
    assert "ok    data directory " in done.out
    assert "ok    accounts " in done.out
    assert "0 failed" in done.err


def test_failure_gives_one_and_json_says_which(cli: Cli) -> None:
    cli.data_dir.joinpath("iothub.toml").write_bytes(ANY_PORT)
    cli.data_dir.joinpath("pepper").chmod(0o644)

    done = cli("doctor", "--json", code=1)

    rows = {row["name"]: row for row in json.loads(done.out)}
    assert done.code == 1
    assert rows["pepper"]["state"] == "FAIL"
    assert rows["accounts"]["ms"] > 0
    assert rows["disk sync"]["state"] == "ok"


def test_every_mistake_of_the_configuration_is_named(cli: Cli) -> None:
    """As `config check` does: those of the settings end the command, those of the files are findings."""
    tls = b'[listeners.tls]\nport = 1\ncert_file = "none.pem"\nkey_file = "none.key"\n'
    files = ["listeners.tls.cert_file", "listeners.tls.key_file"]
    cli.data_dir.joinpath("iothub.toml").write_bytes(ANY_PORT + tls)

    found = [row["text"] for row in cli("doctor", "--json", code=1).json if row["name"] == "configuration"]

    assert [text.partition(":")[0] for text in found] == files

    cli.data_dir.joinpath("iothub.toml").write_bytes(ANY_PORT + tls + b'[mqtt]\nmax_inflight = "x"\n')

    done = cli("doctor", code=2)

    assert (done.out, done.err.count("\n")) == ("", 3)
    assert all(words in done.err for words in ("mqtt.max_inflight: expected a whole number", *files))


def test_directory_without_init_is_said_first(call: Callable[..., Result], tmp_path: Path) -> None:
    done = call("--data-dir", str(tmp_path / "none"), "doctor")

    assert done.code == 3
    assert "init" in done.err


def test_choices_for_tenants_that_do_not_exist_are_named(cli: Cli) -> None:
    """A misspelt tenant would have the common driver, and nobody would notice."""
    cli("tenant", "create", "acme")
    choices = b'[queues]\nchoices = [{driver = "sqlite", tenants = ["acme"]}, {driver = "sqlite", tenants = ["acme", "acne"]}]\n'
    cli.data_dir.joinpath("iothub.toml").write_bytes(ANY_PORT + choices)

    found = [row for row in cli("doctor", "--json").json if row["name"] == "queues.choices"]
    assert [(row["state"], row["text"]) for row in found] == [
        ("warn", "table 2 is for tenant acne, which does not exist")
    ]
    assert found[0]["advice"] == "correct the name, or create the tenant: iothub tenant create acne"

    cli("tenant", "create", "acne")
    assert "all named tenants exist: acme, acne" in cli("doctor").out


def test_running_hub_is_asked_for_its_alarms(cli: Cli) -> None:
    """What it knows of its stores nobody else may find."""
    cli.data_dir.joinpath("iothub.toml").write_bytes(ANY_PORT)
    alarm = {
        "name": "store_corrupt",
        "severity": "critical",
        "subject": "queues",
        "detail": "put aside",
        "advice": "See.",
    }

    with AnsweringHub(cli.data_dir, lambda _request: ([], {"ready": True, "reasons": [], "alarms": [alarm]})):
        rows = {row["name"]: row for row in cli("doctor", "--json", code=1).json}

    assert rows["running hub"]["state"] == "ok"
    assert (rows["alarm store_corrupt"]["state"], rows["alarm store_corrupt"]["advice"]) == ("FAIL", "See.")


def test_file_of_a_newer_program_is_found_before_the_start_is_refused(acme: Cli) -> None:
    acme.data_dir.joinpath("iothub.toml").write_bytes(ANY_PORT)
    with left_behind(DataDir(acme.data_dir)) as written:
        written.log.append([events.session_discarded(Subject(1, "c1", 3, 1), reason="why")])
    with sqlite3.connect(acme.data_dir / "events.db") as connection:
        connection.execute("PRAGMA user_version = 99")

    rows = {row["name"]: row for row in acme("doctor", "--json", code=1).json}

    assert rows["events.db"]["state"] == "FAIL"
    assert "schema version 99, this program knows up to 1" in rows["events.db"]["text"]
