"""`iothub.hub.workers.ended_workers`: what its supervisor writes of a worker whose process has ended."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from iothub.config.datadir import DataDir
from iothub.config.sections import Config, Node
from iothub.hub.workers.ended_workers import EndedWorkers
from iothub_tenants.accounts import hubs
from iothub_tenants.accounts.database import sqlite_url
from iothub_tenants.accounts.hubs import ENDED, LEFT
from iothub_tenants.accounts.store import AccountStore, create_schema

SETTINGS = replace(Config(), node=Node(number=5, workers=2))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[AccountStore]:
    url = sqlite_url(tmp_path / "accounts.db")
    create_schema(url)
    store = AccountStore(url)
    yield store
    store.close()


def run_worker(store: AccountStore, directory: Path, number: int) -> None:
    """A worker has joined, and is killed."""
    row = hubs.begin(store, 4 + number, f"hub-1-w{number}", None)
    worker = DataDir.of_worker(directory, number)
    worker.make_own()
    assert row is not None
    worker.write_member(row.incarnation)


def whys(store: AccountStore) -> list[str]:
    return [row.gone_why for row in hubs.read(store).rows]


def test_end_of_one_worker_is_noted_and_the_view_moves(store: AccountStore, tmp_path: Path) -> None:
    for number in (1, 2):
        run_worker(store, tmp_path, number)
    before = hubs.read(store).version

    ended = EndedWorkers(SETTINGS, DataDir(tmp_path))
    ended.note(ended.of(2))

    view = hubs.read(store)
    assert (whys(store), view.version) == (["", ENDED], before + 1)
    assert view.rows[1].is_over
    assert not view.rows[1].has_left


def test_start_notes_all_workers_of_a_run_that_was_killed(store: AccountStore, tmp_path: Path) -> None:
    """One that nobody starts again, because there are fewer now, has left: nobody waits for it, and no alarm is raised."""
    for number in (1, 2, 3):
        run_worker(store, tmp_path, number)

    ended = EndedWorkers(SETTINGS, DataDir(tmp_path))
    ended.note(ended.of_all())

    assert whys(store) == [ENDED, ENDED, LEFT]


def test_worker_that_has_begun_again_is_not_touched(store: AccountStore, tmp_path: Path) -> None:
    """Who notes the end of the former incarnation may be late."""
    run_worker(store, tmp_path, 1)
    ended = EndedWorkers(SETTINGS, DataDir(tmp_path))
    former = ended.of(1)
    row = hubs.begin(store, 5, "hub-1-w1", hubs.read(store).rows[0])
    assert row is not None
    DataDir.of_worker(tmp_path, 1).write_member(row.incarnation)

    ended.note(former)

    assert whys(store) == [""]


def test_accounts_that_do_not_answer_keep_nobody_from_starting(tmp_path: Path) -> None:
    """The others notice by heartbeat, later."""
    worker = DataDir.of_worker(tmp_path, 1)
    worker.make_own()
    worker.write_member(7)
    (tmp_path / "accounts.db").write_bytes(b"no database at all, and longer than a header would be" * 10)

    ended = EndedWorkers(SETTINGS, DataDir(tmp_path))
    ended.note(ended.of_all())
