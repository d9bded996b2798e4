"""Command lines on initialised data directories."""

from __future__ import annotations

import io
import logging
import shutil
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy.pool import ConnectionPoolEntry

from iothub.cli.main import run
from iothub_services.events.kafka.troubles import LastFailures
from iothub_services.sqlite.database import Database
from iothub_tenants.accounts import database
from tests.support.in_process.command import Cli, Result


@pytest.fixture(autouse=True)
def _hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here survives the test: no need to wait for the disk."""
    prepare, set_durable = database._prepare, Database._set_durable

    def prepare_quickly(connection: sqlite3.Connection, entry: ConnectionPoolEntry) -> None:
        prepare(connection, entry)
        connection.execute("PRAGMA synchronous = OFF")

    def set_quick(opened: Database) -> None:
        set_durable(opened)
        opened.writer.execute("PRAGMA synchronous = OFF")

    monkeypatch.setattr(database, "_prepare", prepare_quickly)
    monkeypatch.setattr(Database, "_set_durable", set_quick)


@pytest.fixture(autouse=True)
def _unsaid() -> None:
    """Kafka's library is one for all clients of a process: what it said in tests before is of none here."""
    for handler in logging.getLogger("kafka").handlers:
        if isinstance(handler, LastFailures):
            handler.take_recent()


@pytest.fixture(autouse=True)
def _without_contexts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of whoever runs the tests are not touched."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Result]:
    def run_command(*words: str, stdin: bytes = b"") -> Result:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8"))
        capsys.readouterr()
        code = run(words)
        captured = capsys.readouterr()
        return Result(code, captured.out, captured.err)

    return run_command


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory as `iothub init` leaves it, made once: migrations take a while."""
    path = tmp_path_factory.mktemp("template") / "hub"
    assert run(["--data-dir", str(path), "init"]) == 0
    return path


@pytest.fixture(scope="session")
def acme_template(template: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with what `acme` promises, made once."""
    path = tmp_path_factory.mktemp("template") / "acme"
    shutil.copytree(template, path)
    assert run(["--data-dir", str(path), "tenant", "create", "acme"]) == 0
    password = path.parent / "password"
    password.write_text("secret")
    create = ["device", "create", "acme", "dev1", "--secret-file", str(password)]
    assert run(["--data-dir", str(path), *create]) == 0
    return path


@pytest.fixture
def cli(template: Path, tmp_path: Path, call: Callable[..., Result]) -> Cli:
    path = tmp_path / "hub"
    shutil.copytree(template, path)
    return Cli(path, call)


@pytest.fixture
def acme(acme_template: Path, tmp_path: Path, call: Callable[..., Result]) -> Cli:
    """The same with tenant `acme` and device `dev1`, whose password is `secret`."""
    path = tmp_path / "hub"
    shutil.copytree(acme_template, path)
    return Cli(path, call)
