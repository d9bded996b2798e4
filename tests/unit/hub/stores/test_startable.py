"""What keeps a hub from starting: all of it is found at once, and looking changes nothing."""

from __future__ import annotations

import socket
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from iothub.base.errors import ConfigError, ConflictError, UnavailableError
from iothub.config.datadir import DataDir
from iothub.config.loader import load
from iothub.config.sections import Cluster, Node
from iothub.hub.stores.startable import require_startable
from iothub.peers import certificates
from iothub_tenants.accounts.database import sqlite_url
from iothub_tenants.accounts.store import create_schema


@pytest.fixture
def made(tmp_path: Path) -> DataDir:
    data_dir = DataDir(tmp_path / "hub")
    data_dir.prepare()
    create_schema(sqlite_url(data_dir.accounts))
    data_dir.finish()
    return data_dir


def require(data_dir: DataDir, *flags: str) -> None:
    require_startable(load(flags=["listeners.tcp.port=0", *flags]).config, data_dir)


def make(file: Path, version: int) -> None:
    with closing(sqlite3.connect(file)) as store:
        store.execute(f"PRAGMA user_version={version}")


def test_sound_directory_is_left_as_it_is(made: DataDir) -> None:
    before = {path: path.read_bytes() for path in made.path.iterdir() if path.is_file()}

    require(made)

    after = {path: path.read_bytes() for path in made.path.iterdir() if path.is_file()}
    assert {path: after[path] for path in before} == before


def test_everything_in_the_way_is_found_at_once(made: DataDir) -> None:
    """The first is the error, whose exit code counts; the others are its details."""
    made.pepper_file.chmod(0o640)
    make(made.state, 99)
    with socket.create_server(("127.0.0.1", 0)) as rival:
        port = rival.getsockname()[1]
        with pytest.raises(ConfigError, match="readable by others") as caught:
            require(made, f"listeners.ws.port={port}", "http.port=1", "http.bind=192.0.2.1")

    assert [text.partition(" ")[0] for text in caught.value.details] == ["state.db", "listener", "http:"]


def test_certificates_of_all_workers_links_are_looked_at(made: DataDir) -> None:
    """Before any of them is started: each is another node."""
    settings = replace(
        load(flags=["listeners.tcp.port=0"]).config,
        node=Node(number=5, workers=2),
        cluster=Cluster(listen="127.0.0.1:7883"),
    )
    with pytest.raises(ConfigError, match=r"cluster\.ca_file: ") as missing:
        require_startable(settings, made)
    assert [text.partition(" ")[0] for text in missing.value.details] == ["cluster.ca_file:"]
    authority = certificates.make_authority()
    for directory, node in ((made.cluster_files, 5), (DataDir.of_worker(made.path, 2).cluster_files, 7)):
        pem = certificates.issue(authority, node, [], 365)
        directory.mkdir(parents=True)
        (directory / "ca.pem").write_bytes(authority.certificate)
        (directory / "cert.pem").write_bytes(pem.certificate)
        (directory / "key.pem").write_bytes(pem.key)

    with pytest.raises(ConfigError, match="is the certificate of node 7, this hub is node 6") as wrong:
        require_startable(settings, made)

    assert not wrong.value.details


def test_store_of_a_newer_program_is_a_conflict(made: DataDir) -> None:
    make(made.queues, 99)

    with pytest.raises(ConflictError, match=r"queues\.db has schema version 99"):
        require(made)


def test_damaged_store_is_no_obstacle(made: DataDir) -> None:
    """The start sets it aside."""
    made.events.write_bytes(b"no database" * 1000)

    require(made)

    assert made.events.read_bytes() == b"no database" * 1000


def test_files_that_the_settings_do_not_use_are_not_looked_at(made: DataDir) -> None:
    make(made.events, 99)

    require(made, "events.driver=kafka", "kafka.brokers=kafka-1:9092")


def test_port_in_use_is_unavailable(made: DataDir) -> None:
    with socket.create_server(("127.0.0.1", 0)) as rival, pytest.raises(UnavailableError, match="the port is in use"):
        require(made, f"listeners.ws.port={rival.getsockname()[1]}")
