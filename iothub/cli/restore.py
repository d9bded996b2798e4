"""`iothub restore`: put a backup into a data directory.

Knows the questions; what is checked and moved is `iothub.backup`'s.
"""

from __future__ import annotations

from pathlib import Path

import click

from iothub.backup import manifest, restoring
from iothub.backup.manifest import Manifest
from iothub.base.clock import SystemClock
from iothub.base.errors import ConflictError, InterruptedWorkError
from iothub.cli import output
from iothub.cli.app import AGREED, App, Command
from iothub.cli.files import NamedPath
from iothub.cli.progress import Progress


@click.command("restore", cls=Command)
@click.argument("folder", metavar="DIR", type=NamedPath())
@click.option("--replace", "is_replacing", is_flag=True, help="Move what is in the data directory aside.")
@AGREED
@click.pass_obj
def command(app: App, folder: Path, is_replacing: bool, is_agreed: bool) -> None:
    """Put the backup in the folder DIR, made by `iothub backup`, into the data directory. No hub may run on it.

    The hash of every file is checked first. The data directory must be empty, or not exist. With --replace, what is in it is moved to the folder
    `replaced-TIME` in it, from where it can be taken back; remove that folder when you do not need it any more.

    The hub goes on as of the moment of the backup: what was delivered since is delivered again, what was published or changed since is missing.
    Stores on servers are not restored; the command names those of the backup.

    Exit codes: 1 if the backup is damaged or the question was declined; 3 if DIR is no whole backup; 4 if the data directory has files, a hub runs on
    it, or a newer program made the backup; 7 if there is no room; 130 after Ctrl-C, and nothing was changed.

    Examples:
      iothub --data-dir ./hub-restored restore ./backup-monday
      iothub --data-dir ./hub restore ./backup-monday --replace --yes
    """
    found = manifest.read(folder)
    data_dir = app.data_dir
    data_dir.make_directory()
    lock = data_dir.lock("iothub restore")
    try:
        has_more = _has_more(app, is_replacing=is_replacing)
        with Progress("bytes checked") as progress:
            restoring.require_sound(folder, found, progress)
        _announce(app, folder, found)
        if has_more:
            app.confirm(f"Replace what is in {data_dir.path}?", is_agreed=is_agreed)
        with Progress("bytes restored") as progress:
            replaced = restoring.restore(folder, found, data_dir, SystemClock(), progress)
    except KeyboardInterrupt:
        raise InterruptedWorkError(_interrupted(app)) from None
    finally:
        lock.release()
    moved = "" if replaced is None else f"; what was there is in {replaced}"
    app.done(
        f"restored {app.data_dir.path} as of {found.cut_at}{moved}\nnext: iothub doctor\nthen: `iothub serve`",
        {
            "name": "restore",
            "data_dir": str(app.data_dir.path),
            "cut_at": found.cut_at,
            "files": len(found.files),
            "bytes": found.size_bytes,
            "replaced": None if replaced is None else str(replaced),
            "elsewhere": list(found.elsewhere),
        },
    )


def _has_more(app: App, *, is_replacing: bool) -> bool:
    """Say whether there is something to replace. Raises ConflictError: it is not to be replaced."""
    data_dir = app.data_dir
    there = restoring.things_in(data_dir)
    if there and not is_replacing and not data_dir.unfinished_restore.exists():
        raise ConflictError(
            f"{data_dir.path} is not empty ({there[0].name}): restore into another --data-dir, or use --replace, which moves what is there aside"
        )
    return bool(there)


def _announce(app: App, folder: Path, found: Manifest) -> None:
    """Say what will happen."""
    beside = "beside its hub" if found.is_hub_running else "while no hub ran"
    app.say(
        f"{folder}: backup of {found.data_dir} as of {found.cut_at}, made {beside} by iothub {found.program}: "
        f"{output.counted(len(found.files), 'file')}, {found.size_bytes} bytes\n"
        "the hub will go on as of that moment: what was delivered since is delivered again, what was published or changed since is missing"
    )
    for line in found.elsewhere:
        output.say(f"iothub: warning: not in the backup, and used as it is now: {line}")


def _interrupted(app: App) -> str:
    if app.data_dir.unfinished_restore.exists():
        return "interrupted while files were moved: run the same command again"
    return "interrupted; nothing was changed"
