"""`iothub backup`: copy the data directory as of one moment, beside its hub or without one.

Knows the hub's socket; what is copied, and in what order, is `iothub.backup`'s.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import click

from iothub.base.clock import SystemClock
from iothub.base.errors import InterruptedWorkError
from iothub.cli import output
from iothub.cli.app import App, Command
from iothub.cli.files import NamedPath
from iothub.cli.progress import Progress
from iothub.records.admin_commands import Verb

if TYPE_CHECKING:
    from iothub.cli.local_hub import LocalHub


@click.command("backup", cls=Command)
@click.argument("folder", metavar="DIR", type=NamedPath())
@click.pass_obj
def command(app: App, folder: Path) -> None:
    """Copy the data directory to the new folder DIR, as of one moment; the hub may run.

    Whatever the hub had acknowledged before the command began is in the backup: accounts, sessions, queued and retained messages, the
    session-event log, the configuration, the keys. The hub stores nothing for some milliseconds, then goes on; this command copies.
    Stores on servers and files outside of the data directory are not copied: they are named, to be saved there.

    Meanwhile the files *.db-wal of the data directory grow by what the hub writes. When they have taken half of the free disk space, the
    command gives up. Keep the folder as secret as the data directory: it has the keys. `iothub restore` puts it back.

    Exit codes: 3 if there is no data directory; 4 if DIR has files; 7 if there is no room, or the hub does not answer; 130 after Ctrl-C, and DIR is
    removed. A folder without `backup.json` is no backup.

    Examples:
      iothub --data-dir ./hub backup ./backup-tuesday
      iothub --data-dir ./hub backup ./backup-wednesday -o json
    """
    from iothub.backup import making
    from iothub.backup.elsewhere import elsewhere
    from iothub.backup.making import Order

    app.require_initialised()
    began = time.monotonic()
    with ExitStack() as stack:
        hub = None
        if app.data_dir.holder() is None:
            stack.callback(app.data_dir.lock("iothub backup").release)
        else:
            hub = RunningHub(app.hub)
        order = Order(app.data_dir, folder, version("iothub"), elsewhere(app.loaded, app.data_dir), hub)
        progress = stack.enter_context(Progress("bytes copied and checked"))
        try:
            made = making.make(order, SystemClock(), progress)
        except KeyboardInterrupt:
            raise InterruptedWorkError("interrupted: no backup was made, what was copied is removed again") from None
    for line in made.elsewhere:
        output.say(f"iothub: warning: not in the backup: {line}")
    app.done(
        f"{folder}: {output.counted(len(made.files), 'file')}, {made.size_bytes} bytes, as of {made.cut_at}",
        {
            "name": "backup",
            "folder": str(folder),
            "cut_at": made.cut_at,
            "files": len(made.files),
            "bytes": made.size_bytes,
            "is_hub_running": made.is_hub_running,
            "elsewhere": list(made.elsewhere),
            "seconds": round(time.monotonic() - began, 3),
        },
    )


class RunningHub:
    """The hub of the data directory, asked to leave its files unchanged for a moment. Fulfils `iothub.backup.making.HubHold`."""

    def __init__(self, hub: LocalHub) -> None:
        self._hub = hub

    def hold(self) -> str:
        return str(self._hub.ask(Verb.BACKUP_HOLD, "", {}).result["hold"])

    def release(self, hold: str) -> bool:
        return bool(self._hub.ask(Verb.BACKUP_RELEASE, "", {"hold": hold}).result["is_whole"])
