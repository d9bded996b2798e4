"""`iothub restore`: put a backup into a data directory.

Knows what is said; what is checked and moved is `iothub.backup`'s. Nothing is deleted, so nothing is asked.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from iothub.base.clock import SystemClock
from iothub.base.errors import ConflictError, InterruptedWorkError
from iothub.cli import output
from iothub.cli.app import App, Command
from iothub.cli.files import NamedPath
from iothub.cli.progress import Progress

if TYPE_CHECKING:
    from iothub.backup.manifest import Manifest


@click.command("restore", cls=Command)
@click.argument("folder", metavar="DIR", type=NamedPath())
@click.option("--replace", "is_replacing", is_flag=True, help="Move what is in the data directory aside.")
@click.option("--dry-run", "is_dry_run", is_flag=True, help="Check the backup, say what would happen, change nothing.")
@click.pass_obj
def command(app: App, folder: Path, is_replacing: bool, is_dry_run: bool) -> None:
    """Put the backup in the folder DIR, made by `iothub backup`, into the data directory. No hub may run on it.

    The hash of every file is checked first. The data directory must be empty, or not exist. With --replace, what is in it is moved to the folder
    `replaced-TIME` in it. Move it back to undo the restore; remove that folder when you do not need it any more. Nothing is deleted or
    overwritten, so there is no question and no --yes.

    The hub continues from the moment of the backup: messages delivered since are delivered again, what was published or changed since is missing.
    Stores on servers are not restored; the command names those of the backup.

    Exit codes: 1 if the backup is damaged; 3 if DIR is no complete backup; 4 if the data directory has files, a hub runs on
    it, or a newer program made the backup; 7 if there is no room; 130 after Ctrl-C, and nothing was changed.

    Examples:
      iothub --data-dir ./hub-restored restore ./backup-monday
      iothub --data-dir ./hub restore ./backup-monday --replace
    """
    from iothub.backup import manifest, restoring

    data_dir = app.data_dir
    try:
        found = manifest.read(folder)
        _check(app, folder, found, is_replacing=is_replacing)
        if is_dry_run:
            app.done("the backup is complete; nothing was changed", {**_record(app, found), "is_restored": False})
            return
        data_dir.make_directory()
        with ExitStack() as stack:
            stack.callback(data_dir.lock("iothub restore").release)
            _require_place(app, is_replacing=is_replacing)  # somebody may have come while the files were read
            progress = stack.enter_context(Progress("bytes restored"))
            replaced = restoring.restore(folder, found, data_dir, SystemClock(), progress)
    except KeyboardInterrupt:
        raise InterruptedWorkError(_interrupted(app)) from None
    moved = "" if replaced is None else f"; what was there is in {replaced}"
    app.done(
        f"restored {data_dir.path} as of {found.cut_at}{moved}\nnext: iothub doctor\nthen: `iothub serve`",
        {**_record(app, found), "is_restored": True, "replaced": None if replaced is None else str(replaced)},
    )


def _check(app: App, folder: Path, found: Manifest, *, is_replacing: bool) -> None:
    """See whether the backup can be restored, and say what will happen; change nothing. Raises IotHubError: it cannot."""
    from iothub.backup import restoring

    if (holder := app.data_dir.holder()) is not None:
        raise ConflictError(f"{app.data_dir.path} is in use by {holder}; stop it first")
    _require_place(app, is_replacing=is_replacing)
    restoring.require_room(app.data_dir, found)
    with Progress("bytes checked") as progress:
        restoring.require_sound(folder, found, progress)
    _announce(app, folder, found)


def _require_place(app: App, *, is_replacing: bool) -> None:
    from iothub.backup import restoring

    data_dir = app.data_dir
    there = restoring.entries_to_replace(data_dir)
    if there and not is_replacing and not data_dir.unfinished_restore.exists():
        raise ConflictError(
            f"{data_dir.path} is not empty ({there[0].name}): restore into another --data-dir, or use --replace, which moves what is there aside"
        )


def _announce(app: App, folder: Path, found: Manifest) -> None:
    beside = "beside its hub" if found.is_hub_running else "while no hub ran"
    app.say(
        f"{folder}: backup of {found.data_dir} as of {found.cut_at}, made {beside} by iothub {found.program}: "
        f"{output.counted(len(found.files), 'file')}, {found.size_bytes} bytes\n"
        "the hub will continue from that moment: messages delivered since are delivered again, what was published or changed since is missing"
    )
    for line in found.elsewhere:
        output.say(f"iothub: warning: not in the backup, and used as it is now: {line}")


def _record(app: App, found: Manifest) -> dict[str, object]:
    return {
        "name": "restore",
        "data_dir": str(app.data_dir.path),
        "cut_at": found.cut_at,
        "files": len(found.files),
        "bytes": found.size_bytes,
        "elsewhere": list(found.elsewhere),
    }


def _interrupted(app: App) -> str:
    if app.data_dir.unfinished_restore.exists():
        return "interrupted while files were moved: run the same command again"
    return "interrupted; nothing was changed"
