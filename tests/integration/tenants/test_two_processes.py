"""Accounts under two real processes at once: what two callers want, one gets; nothing is written by a process that dies."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from iothub_tenants.accounts import tenants
from iothub_tenants.accounts.changes import ChangeWatcher
from iothub_tenants.accounts.database import sqlite_url
from iothub_tenants.accounts.generator import BlockSource
from iothub_tenants.accounts.initial import init_store
from iothub_tenants.accounts.store import AccountStore
from tests.support.waiting import PATIENCE_S

PREPARE = """
import os, sys
from iothub.base.errors import ConflictError
from iothub_tenants.accounts import tenants
from iothub_tenants.accounts.generator import BlockSource
from iothub_tenants.accounts.store import AccountStore, ChangeKind
store = AccountStore(sys.argv[1], pepper=b"p" * 32)
print("ready", flush=True)
sys.stdin.readline()
"""

CREATE = """
won = 0
for number in range(25):
    try:
        tenants.create(store, f"tenant-{number}")
        won += 1
    except ConflictError as refusal:
        assert "exists already" in str(refusal)
print(won, flush=True)
"""

ALLOCATE = """
source = BlockSource(store, size=2)
print(*(source.allocate() for _ in range(30)), flush=True)
"""

DIE = """
with store.write() as writer:
    created = tenants.create_closed(writer, "half", "standard")
    print(created.id, flush=True)
    os.kill(os.getpid(), 9)
"""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[AccountStore]:
    opened = init_store(sqlite_url(tmp_path / "accounts.db"), pepper=b"p" * 32)
    yield opened
    opened.close()


def run_together(store: AccountStore, program: str, count: int) -> list[str]:
    """Start processes, let them go at the same moment and return what each printed."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    started = [
        subprocess.Popen(
            [sys.executable, "-c", PREPARE + program, store.url],
            env=environment,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for _ in range(count)
    ]
    for process in started:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    return [output for output, _ in [process.communicate("go\n", timeout=PATIENCE_S) for process in _released(started)]]


def _released(started: list[subprocess.Popen[str]]) -> list[subprocess.Popen[str]]:
    for process in started[1:]:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    return started


def test_each_tenant_is_created_by_one_of_two_processes(store: AccountStore) -> None:
    """One creates it, the other gets a conflict; never both, never neither."""
    watcher = ChangeWatcher(store)

    won = run_together(store, CREATE, 2)

    assert sum(int(count) for count in won) == 25
    assert len({tenant.id for tenant in tenants.list_all(store)}) == 25
    assert len(watcher.poll()) == 25


def test_queue_ids_of_two_processes_differ(store: AccountStore) -> None:
    """Blocks come from one counter (B50)."""
    found = [int(word) for output in run_together(store, ALLOCATE, 2) for word in output.split()]

    assert len(set(found)) == 60
    assert BlockSource(store).allocate() > max(found)


def test_process_that_dies_in_a_transaction_leaves_nothing(store: AccountStore) -> None:
    """Neither the row nor the line in the change log; the next writer is not held up."""
    watcher = ChangeWatcher(store)

    run_together(store, DIE, 1)

    assert tenants.list_all(store) == []
    assert watcher.poll() == []
    assert tenants.create(store, "half").name == "half"
