"""A running hub follows its accounts: who was deleted leaves, what was changed is obeyed, what is asked is done - in this order, at every look.

Knows no change's meaning and no command's: `departures`, `obey` and `admin_commands` do. Rights that others lose wait for no disk, no store and no
other tenant: what is remembered of a change is forgotten as soon as it is heard of, and what may have to wait is done aside.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Protocol

from iothub.base import log as logging
from iothub.base.errors import IotHubError
from iothub_services.auth.change_watermark import Horizon
from iothub_services.auth.port import Run
from iothub_tenants.accounts import commands
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
from iothub_tenants.background.admin_commands import QUICK, AdminCommands
from iothub_tenants.background.apply_changes import Obedience
from iothub_tenants.background.aside import PATIENCE_S, Aside
from iothub_tenants.background.device_removal import Departures

_OF_OTHERS = frozenset({ChangeKind.COMMAND, ChangeKind.STREAM})  # no session is concerned

log = logging.get(__name__)

Later = Callable[[float, Callable[[], None]], object]


class Marks(Protocol):
    """Where it is noted up to which change the sessions of every deleted device have ended. Both calls block."""

    def read_obeyed(self) -> int | None:
        """None: nothing was ever noted."""

    def write_obeyed(self, change: int) -> None:
        """Raises IotHubError."""


class CommandRows:
    """The command table as admin commands are answered in it, in a thread."""

    def __init__(self, store: AccountStore, run: Run) -> None:
        self._store = store
        self._run = run

    async def answer(self, number: int, result: Mapping[str, object]) -> None:
        await self._run("accounts.answer", commands.answer, self._store, number, result)

    async def fail(self, number: int, error: IotHubError) -> None:
        await self._run("accounts.fail", commands.fail, self._store, number, error)

    async def pass_on(self, number: int, node: int, so_far: Mapping[str, object]) -> None:
        await self._run("accounts.pass_on", commands.pass_on, self._store, number, node, so_far)

    async def progress(self, number: int, so_far: Mapping[str, object]) -> None:
        await self._run("accounts.progress", commands.progress, self._store, number, so_far)


class Following:
    """On the reactor thread.

    Invariants: what was changed before a command was given is heard of before the command is done, and obeyed if that does not take long;
    a change that was heard of is not forgotten because something behind it fails.
    """

    def __init__(  # noqa: PLR0913 - what changes and commands are given to, one by one
        self,
        store: AccountStore,
        run: Run,
        marks: Marks,
        later: Later,
        departures: Departures,
        obedience: Obedience,
        admin_commands: AdminCommands,
        *,
        node: int | None = None,
        heard: Callable[[Sequence[Change]], None] | None = None,
    ) -> None:
        """`node`: this hub's node number, where others use these accounts, too. `heard`: who else wants to hear of changes."""
        self._node = node
        self._horizon: Horizon | None = None
        self._store = store
        self._run = run
        self._marks = marks
        self._departures = departures
        self._obedience = obedience
        self._admin_commands = admin_commands
        self._rows = CommandRows(store, run)
        self._departing = Aside("departures", later, PATIENCE_S)
        self._noting = Aside("what was obeyed", later, PATIENCE_S)
        self._asked = Aside("admin commands", later, PATIENCE_S)
        self._asked_quick = Aside("quick admin commands", later, PATIENCE_S)
        self._watcher: ChangeWatcher
        self._obeyed = -1
        self._is_asked = False
        self._heard = heard or _nobody

    async def begin(self, watcher: ChangeWatcher, horizon: Horizon | None = None) -> None:
        """End the sessions of devices that were deleted while no hub ran here; `look` goes on from the watcher's place.

        What was obeyed and could not be noted is heard of again, and what was never noted from the log's beginning: it does no harm.
        `horizon`: hears of every look, if records of a shared cache are used.
        """
        if horizon is not None:
            horizon.begin(
                lines(await self._run("accounts.latest", latest, self._store, watcher.after)), watcher.made_at
            )
            self._horizon = horizon
        obeyed = await self._run("housekeeping.obeyed", self._marks.read_obeyed) or 0
        if obeyed > watcher.after:  # of accounts that are gone: these were restored
            obeyed, self._obeyed = 0, -1
        self._departures.note(await self._run("accounts.deleted", deleted_devices, self._store, obeyed))
        await self._end_departed()
        if not self._departures.is_pending:
            await self._note_obeyed(watcher.after)
        self._watcher = watcher

    async def look(self) -> None:
        """Obey what was changed since the last look, and do what is asked. Raises BackendError."""
        await self._obey()
        while self._is_asked:
            taken = await self._run("accounts.take", commands.take, self._store, node=self._node)
            self._is_asked = False
            try:
                await self._obey()
            finally:
                for aside, is_quick in ((self._asked_quick, True), (self._asked, False)):
                    chosen = [command for command in taken if (command.verb in QUICK) is is_quick]
                    if chosen:
                        await aside.do(partial(self._admin_commands.run, chosen, self._rows))

    async def _obey(self) -> None:
        try:
            await self._hear()
        except PlaceLostError as error:
            await self._begin_anew(error)
        await self._end_departed()
        await self._obedience.obey()

    async def _hear(self) -> None:
        """Take in all that was changed since the last look; nothing is awaited between a change and all that it makes us forget."""
        count = BATCH
        while count == BATCH:
            looked_at = 0.0 if self._horizon is None else self._horizon.now()
            changes = await self._run("accounts.poll", self._watcher.poll)
            if self._horizon is not None:
                self._horizon.saw(lines(changes), looked_at)
            self._obedience.note(change for change in changes if change.kind not in _OF_OTHERS)
            self._departures.note(changes)
            self._is_asked |= any(change.kind is ChangeKind.COMMAND for change in changes)
            self._heard(changes)
            count = len(changes)

    async def _begin_anew(self, error: PlaceLostError) -> None:
        """What was changed is not known: look at everything. As long as that fails, the next look does it again."""
        log.warning("what was changed in the accounts is not known; everything is looked at anew", cause=str(error))
        watcher = await self._run("accounts.watch", ChangeWatcher, self._store)
        self._departures.forget_place()
        await self.begin(watcher, self._horizon)
        self._obedience.doubt_everything()  # now: what was read meanwhile from a shared cache was judged by the lines of before
        self._is_asked = True
        self._heard([Change(watcher.after, 0, ChangeKind.STREAM, "*", 0)])

    async def _end_departed(self) -> None:
        """End the sessions of deleted devices, and note so when it is done: it is asked at the next start."""
        if not self._departing.is_busy:
            await self._departing.do(self._departures.turn)
        if self._departures.settled > self._obeyed and not self._noting.is_busy:
            await self._noting.do(lambda: self._note_obeyed(self._departures.settled))

    async def _note_obeyed(self, change: int) -> None:
        """Tried again at the next look when the disk is full: nothing else waits for it."""
        if change <= self._obeyed:
            return
        try:
            await self._run("housekeeping.obeyed", self._marks.write_obeyed, change)
        except IotHubError as error:
            log.warning("what was obeyed could not be noted", error=str(error))
        else:
            self._obeyed = change


def _nobody(_changes: Sequence[Change]) -> None:
    """Nobody else wants to hear of changes."""
