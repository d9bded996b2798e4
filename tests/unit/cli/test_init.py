"""`iothub init`: the configuration of each profile, what is kept, and what a second try finds."""

from __future__ import annotations

import re
import shutil
import stat
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from iothub.base.errors import BackendError
from iothub.config.check import check_start
from iothub.config.datadir import DataDir
from iothub.config.loader import load, needs_on_hbase, needs_on_redis
from iothub.config.profiles import PROFILES
from iothub.config.sections import Config
from iothub_tenants.accounts import tenants
from iothub_tenants.accounts.database import sqlite_url
from iothub_tenants.accounts.gate import ADVICE, RefusedError
from iothub_tenants.accounts.store import AccountStore
from tests.support.in_process.command import Result

Call = Callable[..., Result]

_COMMENTED = re.compile(r"^# ?(?=(\[[a-z.]+\]|[a-z_]+ = \S.*)$)", re.MULTILINE)


def written(folder: Path, name: str) -> Config:
    """Write the files of a profile and load them."""
    directory = DataDir(folder)
    directory.write_profile(PROFILES[name])
    return load(file=directory.config_file).config


@pytest.mark.parametrize("name", PROFILES)
def test_every_profile_is_a_valid_configuration(tmp_path: Path, name: str) -> None:
    """As it is written, before anybody has edited it."""
    assert check_start(written(tmp_path, name)) == []


@pytest.mark.parametrize("name", PROFILES)
def test_what_stands_in_a_comment_is_valid_when_its_sign_is_taken_away(tmp_path: Path, name: str) -> None:
    """All of it at once: names of settings, sections in their places, values that are accepted."""
    written(tmp_path, name)
    file = tmp_path / "iothub.toml"
    bare = _COMMENTED.sub("", file.read_text())
    assert bare.count("\n[") > file.read_text().count("\n[")
    file.write_text(bare)

    assert load(file=file).config.listeners.tcp.bind == "0.0.0.0"


def test_embedded_is_what_holds_without_a_file(tmp_path: Path) -> None:
    assert written(tmp_path, "embedded") == load().config


def test_single_server_keeps_what_is_owed_in_files(tmp_path: Path) -> None:
    """Kafka and Redis may be away without anything being lost."""
    config = written(tmp_path, "single-server")

    assert (config.events.driver, config.sql.url_file) == ("sqlite", None)
    assert needs_on_hbase(config) == needs_on_redis(config) == []
    assert (config.kafka.replication, config.auth.shared_cache) == (1, "redis")


def test_cluster_keeps_nothing_that_hubs_share_in_files(tmp_path: Path) -> None:
    config = written(tmp_path, "cluster")

    assert {name for name, _ in needs_on_hbase(config)} == {"queues.driver", "state.driver", "retained.driver"}
    assert (config.events.driver, config.auth.shared_cache, config.quota.ledger) == ("kafka", "redis", "redis")
    assert config.sql.url_file == tmp_path / "accounts.url"


def test_without_a_profile_it_is_the_embedded_one(call: Call, tmp_path: Path) -> None:
    assert call("--data-dir", str(tmp_path / "one"), "init").code == 0
    assert call("--data-dir", str(tmp_path / "two"), "init", "--profile", "embedded").code == 0

    texts = {(tmp_path / name / "iothub.toml").read_text() for name in ("one", "two")}
    assert texts == {PROFILES["embedded"].config}


def test_single_server_is_made_in_one_step(call: Call, tmp_path: Path) -> None:
    """Its accounts are in a file, so no server need answer."""
    done = call("--data-dir", str(tmp_path), "init", "--profile", "single-server")

    assert (done.code, f"next: iothub --data-dir {tmp_path} doctor" in done.err) == (0, True)
    assert call("--data-dir", str(tmp_path), "tenant", "create", "acme").code == 0


def test_cluster_waits_for_addresses(call: Call, tmp_path: Path) -> None:
    """The files are there, secrets are their owner's, and no account is made anywhere."""
    done = call("--data-dir", str(tmp_path), "init", "--profile", "cluster", "-o", "json")

    assert (done.code, done.json["is_initialised"]) == (0, False)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["accounts.url", "iothub.toml"]
    assert stat.S_IMODE((tmp_path / "accounts.url").stat().st_mode) == 0o600
    assert call("--data-dir", str(tmp_path), "config", "check").code == 0
    assert "is not initialised yet" in call("--data-dir", str(tmp_path), "serve").err


def test_cluster_from_its_files_to_a_second_hub(call: Call, tmp_path: Path) -> None:
    """Edit, `init`, copy three files, `init`: one installation; what was edited stays as it is."""
    one, two = tmp_path / "one", tmp_path / "two"
    call("--data-dir", str(one), "init", "--profile", "cluster")
    (one / "accounts.url").write_text(sqlite_url(tmp_path / "shared.db"))
    edited = (one / "iothub.toml").read_text().replace("kafka-1", "10.0.0.1")
    (one / "iothub.toml").write_text(edited)

    made = call("--data-dir", str(one), "init")
    assert (made.code, "hbase create-tables" in made.err) == (0, True)
    assert (one / "iothub.toml").read_text() == edited
    assert call("--data-dir", str(one), "tenant", "create", "acme").code == 0

    two.mkdir()
    for name in ("iothub.toml", "accounts.url"):
        shutil.copy(one / name, two)
    assert "pepper is missing" in call("--data-dir", str(two), "init").err
    shutil.copy(one / "pepper", two)
    joined = call("--data-dir", str(two), "init")
    assert (joined.code, f"next: iothub --data-dir {two} doctor" in joined.err) == (0, True)
    assert "create" not in joined.err  # tables and tenants of the first hub are there
    assert "acme" in call("--data-dir", str(two), "tenant", "list").out
    assert call("--data-dir", str(two), "init").code == 4


def test_address_of_the_accounts_in_the_environment_needs_no_edit(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As containers have it: one command."""
    (tmp_path / "secret.url").write_text(sqlite_url(tmp_path / "shared.db"))
    monkeypatch.setenv("IOTHUB_SQL__URL_FILE", str(tmp_path / "secret.url"))

    assert "initialised" in call("--data-dir", str(tmp_path / "hub"), "init", "--profile", "cluster").err


@pytest.mark.parametrize("name", PROFILES)
def test_second_profile_overwrites_nothing_and_says_so(call: Call, tmp_path: Path, name: str) -> None:
    call("--data-dir", str(tmp_path), "init", "--profile", name)
    edited = (tmp_path / "iothub.toml").read_text() + "# mine\n"
    (tmp_path / "iothub.toml").write_text(edited)

    again = call("--data-dir", str(tmp_path), "init", "--profile", "embedded")

    assert again.code == 4
    assert "iothub.toml exists and is not overwritten" in again.err
    assert (tmp_path / "iothub.toml").read_text() == edited


def test_profile_and_config_are_not_asked_for_together(call: Call, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text("config_version = 1\n")

    words = (
        "--data-dir",
        str(tmp_path / "hub"),
        "--config",
        str(tmp_path / "mine.toml"),
        "init",
        "--profile",
        "cluster",
    )

    assert (call(*words).code, (tmp_path / "hub").exists()) == (2, False)


@pytest.mark.parametrize("fails", ["has_schema", "create_schema"])
def test_server_that_fails_is_named_and_tried_again(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    """Before anything was made, or halfway: the same command goes on."""
    call("--data-dir", str(tmp_path), "init", "--profile", "cluster")
    (tmp_path / "accounts.url").write_text(sqlite_url(tmp_path / "shared.db"))

    def fail(_url: str) -> bool:
        raise BackendError("the accounts database does not answer", retryable=True)

    where = "initial" if fails == "create_schema" else "store"
    with monkeypatch.context() as patch:
        patch.setattr(f"iothub_tenants.accounts.{where}.{fails}", fail)
        failed = call("--data-dir", str(tmp_path), "init")
    assert failed.code == 7
    assert f"correct {tmp_path / 'accounts.url'} or the server, then run `iothub" in failed.err
    assert "run `iothub" in call("--data-dir", str(tmp_path), "serve").err

    assert call("--data-dir", str(tmp_path), "init").code == 0
    assert not (tmp_path / "init-unfinished").exists()
    with closing(AccountStore(sqlite_url(tmp_path / "shared.db"))) as store:
        assert tenants.list_all(store) == []


@pytest.mark.parametrize("fails", ["has_schema", "create_schema"])
def test_server_that_lets_nobody_in_is_told_with_the_file_of_its_password(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    """A wrong password: the file may have been named by the environment, a profile, or an option."""
    call("--data-dir", str(tmp_path), "init", "--profile", "cluster")
    (tmp_path / "accounts.url").write_text(sqlite_url(tmp_path / "shared.db"))

    def refuse(_url: str) -> bool:
        raise RefusedError("no connection to the accounts database: Access denied")

    where = "initial" if fails == "create_schema" else "store"
    monkeypatch.setattr(f"iothub_tenants.accounts.{where}.{fails}", refuse)
    failed = call("--data-dir", str(tmp_path), "init")

    assert failed.code == 2
    assert f"Access denied; {ADVICE}; correct {tmp_path / 'accounts.url'} or the server, then run `iothub" in failed.err


def test_doctor_looks_at_servers_before_there_are_accounts(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever edits addresses wants to know which of them answer."""
    call("--data-dir", str(tmp_path), "init", "--profile", "cluster")
    (tmp_path / "accounts.url").write_text("mysql+pymysql://iothub:secret@127.0.0.1:1/iothub")
    for name in ("KAFKA__BROKERS", "HBASE__THRIFT", "REDIS__ADDRESSES"):
        monkeypatch.setenv(f"IOTHUB_{name}", "127.0.0.1:1")
    monkeypatch.setenv("IOTHUB_KAFKA__TIMEOUT", "500ms")

    done = call("--data-dir", str(tmp_path), "doctor", "-o", "json")

    rows = {row["name"]: row for row in done.json}
    assert done.code == 1
    assert rows["configuration"]["state"] == "ok"
    assert "iothub init" in rows["data directory"]["advice"]
    for name, word in {
        "accounts": "accounts.url",
        "Redis": "redis.addresses",
        "Kafka": "kafka.brokers",
        "HBase tables": "hbase.thrift",
    }.items():
        assert (rows[name]["state"], word in rows[name]["advice"]) == ("FAIL", True), rows[name]
    assert "secret" not in done.out
