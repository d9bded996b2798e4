"""Follows the change log of the accounts: ends the sessions of deleted devices, then applies changes.

Knows the meaning of no change: `device_removal` and `apply_changes` do. A revoked right waits for no disk, no store and no other tenant: the
caches are cleared as soon as a change is read, and what may have to wait is done in a `TaskQueue`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from twisted.internet.defer import DeferredLock

from iothub.base import log as logging
from iothub.base.errors import IotHubError
from iothub_services.auth.change_watermark import ChangeWatermark
from iothub_services.auth.port import Run
from iothub_tenants.accounts.changes import (
    BATCH,
    Change,
    ChangeWatcher,
    PlaceLostError,
    deleted_devices,
    latest,
    lines,
)
from iothub_tenants.accounts.store import AccountStore, ChangeKind
from iothub_tenants.background.apply_changes import AccountChangeApplier
from iothub_tenants.background.device_removal import DeviceRemoval
from iothub_tenants.background.task_queue import PATIENCE_S, TaskQueue

log = logging.get(__name__)

_OF_NO_CLIENT = (ChangeKind.STREAM, ChangeKind.JOB)

Later = Callable[[float, Callable[[], None]], object]
OnChanges = Callable[[Sequence[Change]], None]


class AppliedMark(Protocol):
    """Saves up to which change the sessions of every deleted device have ended. Both calls block."""

    def read_applied(self) -> int | None:
        """Return the change; None: none was ever saved."""

    def write_applied(self, change: int) -> None:
        """Raises IotHubError."""


class AccountFollower:
    """On the reactor thread.

    Invariants: a change made before a call of `follow_changes` is read when that returns, and applied if that does not take long; a change that
    was read is not lost because something after it fails.
    """

    def __init__(
        self,
        store: AccountStore,
        run: Run,
        mark: AppliedMark,
        later: Later,
        removal: DeviceRemoval,
        account_changes: AccountChangeApplier,
        on_changes: OnChanges | None = None,
    ) -> None:
        """`on_changes`: called with every batch of changes."""
        self._watermark: ChangeWatermark | None = None
        self._store = store
        self._run = run
        self._mark = mark
        self._removal = removal
        self._account_changes = account_changes
        self._on_changes = on_changes
        self._removing = TaskQueue("device removal", later, PATIENCE_S)
        self._saving = TaskQueue("last applied change", later, PATIENCE_S)
        self._following = DeferredLock()
        self._watcher: ChangeWatcher
        self._applied = -1

    async def watch(self) -> ChangeWatcher:
        """Return what reads the changes that are made from now on. Raises BackendError."""
        return await self._run("accounts.watch", ChangeWatcher, self._store)

    async def begin(self, watcher: ChangeWatcher, watermark: ChangeWatermark | None = None) -> None:
        """End the sessions of devices that were deleted while no hub ran here; `follow_changes` goes on after the watcher's last change.

        Deletions after the last saved change are handled once more, from the beginning of the log if none was saved: that does no harm.
        `watermark`: is updated by every read of the log, if records of a shared cache are used.
        """
        if watermark is not None:
            watermark.begin(
                lines(await self._run("accounts.latest", latest, self._store, watcher.after)), watcher.made_at
            )
            self._watermark = watermark
        applied = await self._run("housekeeping.applied", self._mark.read_applied) or 0
        if applied > watcher.after:  # saved for other accounts: these were restored from a backup
            applied, self._applied = 0, -1
        self._removal.note_deletions(await self._run("accounts.deleted", deleted_devices, self._store, applied))
        await self._remove_devices()
        if not self._removal.is_pending:
            await self._save_applied(watcher.after)
        self._watcher = watcher

    async def follow_changes(self) -> None:
        """Apply what was changed since the last call: at a time, one caller after the other. Raises BackendError."""
        await self._following.acquire()
        try:
            try:
                await self._read_changes()
            except PlaceLostError as error:
                await self._begin_anew(error)
            await self._remove_devices()
            await self._account_changes.apply_changes()
        finally:
            self._following.release()

    async def _read_changes(self) -> None:
        """Note all changes since the last read; nothing is awaited between a change and the caches that it clears."""
        count = BATCH
        while count == BATCH:
            read_at = 0.0 if self._watermark is None else self._watermark.now()
            changes = await self._run("accounts.poll", self._watcher.poll)
            if self._watermark is not None:
                self._watermark.saw(lines(changes), read_at)
            self._account_changes.note_changes(change for change in changes if change.kind not in _OF_NO_CLIENT)
            self._removal.note_deletions(changes)
            self._notify(changes)
            count = len(changes)

    async def _begin_anew(self, error: PlaceLostError) -> None:
        """The place in the log is lost: review every session. While that fails, the next `follow_changes` does it again."""
        log.warning("position in the account change log lost; checking every session", cause=str(error))
        watcher = await self.watch()
        self._removal.restart_log()
        await self.begin(watcher, self._watermark)
        # Only now: records of a shared cache that were read meanwhile were judged by the old lines of the log.
        self._account_changes.reapply_everything()
        self._notify([Change(watcher.after, 0, ChangeKind.STREAM, "*", 0)])

    def _notify(self, changes: Sequence[Change]) -> None:
        if self._on_changes is not None:
            self._on_changes(changes)

    async def _remove_devices(self) -> None:
        """End the sessions of deleted devices, then save how far that is done, for the next start."""
        if not self._removing.is_busy:
            await self._removing.run_task(self._removal.end_sessions)
        if self._removal.done_upto > self._applied and not self._saving.is_busy:
            await self._saving.run_task(lambda: self._save_applied(self._removal.done_upto))

    async def _save_applied(self, change: int) -> None:
        """Save the last applied change; a full disk delays nothing else, and the next `follow_changes` tries again."""
        if change <= self._applied:
            return
        try:
            await self._run("housekeeping.applied", self._mark.write_applied, change)
        except IotHubError as error:
            log.warning("could not save the last applied change", error=str(error))
        else:
            self._applied = change
