"""The hub's part of a backup: its commits wait between the two requests, and the second one says whether they did."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from iothub.base.errors import UnavailableError
from iothub.hub import backup_hold
from iothub.hub.backup_hold import BackupHold
from iothub.records.admin_commands import Request, Verb
from iothub_services.sqlite.commit_lock import CommitLock

LONG_S = 30.0


async def run(_name: str, call: Callable[..., Any], *arguments: object) -> Any:
    """Do what a thread would do."""
    return call(*arguments)


async def pause(_seconds: float) -> None:
    return None


def done(work: Awaitable[Any]) -> Any:
    async def wait() -> Any:
        return await work

    return asyncio.run(wait())


def release(hold: object) -> Request:
    return Request(Verb.BACKUP_RELEASE, "", {"hold": hold})


def test_commits_wait_between_hold_and_release(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backup_hold, "HOLD_S", LONG_S)
    commits, seen = CommitLock(), list[str]()
    held = BackupHold(commits, run, pause)  # type: ignore[arg-type]

    def commit() -> None:
        with commits.commit():
            seen.append("commit")

    with ThreadPoolExecutor() as threads:
        hold = done(held.begin())["hold"]
        waiting = threads.submit(commit)
        seen.append("release")
        answer = done(held.end(release(hold)))
        waiting.result(LONG_S)

    assert answer == {"is_whole": True}
    assert seen == ["release", "commit"]


def test_release_that_comes_too_late_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backup_hold, "HOLD_S", 0.0)
    commits = CommitLock()
    held = BackupHold(commits, run, pause)  # type: ignore[arg-type]

    hold = done(held.begin())["hold"]
    with commits.commit():
        pass

    assert done(held.end(release(hold))) == {"is_whole": False}


@pytest.mark.parametrize("hold", [None, "", 7, "0123456789abcdef"])
def test_hold_that_nobody_has_is_not_released(hold: object) -> None:
    held = BackupHold(CommitLock(), run, pause)  # type: ignore[arg-type]

    assert done(held.end(release(hold))) == {"is_whole": False}


def test_commit_that_hangs_refuses_the_backup(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backup_hold, "PATIENCE_S", backup_hold.AGAIN_S)
    commits = CommitLock()

    with commits.commit(), pytest.raises(UnavailableError, match="the disk is slow or failing"):
        done(BackupHold(commits, run, pause).begin())  # type: ignore[arg-type]


def test_second_backup_waits_without_the_thread_of_the_first_ones_release(monkeypatch: pytest.MonkeyPatch) -> None:
    """One thread has both requests: whoever waited in it for the first hold would keep that from being released."""
    monkeypatch.setattr(backup_hold, "HOLD_S", LONG_S)
    released: list[object] = []

    async def release_first(_seconds: float) -> None:
        if not released:
            released.append(await held.end(release(first)))

    held = BackupHold(CommitLock(), run, release_first)  # type: ignore[arg-type]
    first = done(held.begin())["hold"]
    second = done(held.begin())["hold"]

    assert released == [{"is_whole": True}]
    assert done(held.end(release(second))) == {"is_whole": True}


def test_backup_that_does_not_end_refuses_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backup_hold, "HOLD_S", LONG_S)
    held = BackupHold(CommitLock(), run, pause)  # type: ignore[arg-type]
    done(held.begin())

    with pytest.raises(UnavailableError, match="another backup is beginning"):
        done(held.begin())
