"""`iothub bundle`: one archive with what somebody needs who is asked for help, without secrets.

Knows no part's inside: each is taken as its own command shows it. What cannot be had is named with the reason, and the rest is taken.
"""

from __future__ import annotations

import io
import json
import os
import re
import stat
import tarfile
import time
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import click

from iothub.admin.content import time_of
from iothub.admin.runs import run_row
from iothub.base.errors import ConfigError, IotHubError, NotFoundError, UnavailableError
from iothub.cli import alarm, config, status
from iothub.cli.app import App, Command
from iothub.cli.files import NamedPath, require_free, write_new_file
from iothub.cli.redaction import Redaction
from iothub.records.admin_commands import Verb
from iothub.records.job_catalogue import CATALOGUE

LOG_BYTES = 1 << 20  # its newest lines
_METRICS_BYTES = 16 << 20
_FILES = 10_000
_RUNS = 3
_MODE = 0o600
_PUBLIC = ("ca_file", "cert_file", "certificate_file")
_OF_THE_HUB = re.compile(
    r'\d{4}-\d\d-\d\dT|\{(?=.*"event": ).*"time": "\d{4}-\d\d-\d\dT'
)  # a line of the log, as text or as JSON
_NO_LOG = "add the end of the hub's log yourself; with systemd: journalctl -u iothub"


@dataclass(frozen=True, slots=True)
class Part:
    """A file of the archive. `take` returns JSON, or a text; it raises IotHubError or OSError if it cannot be had."""

    file: str
    take: Callable[[App], object]


@dataclass(frozen=True, slots=True)
class Taken:
    """What became of a part. `content`: None if it is not in the archive; `reason` says why."""

    name: str
    file: str
    state: str
    content: bytes | None = None
    reason: str = ""

    def row(self) -> dict[str, object]:
        size = None if self.content is None else len(self.content)
        return {
            "name": self.name,
            "file": self.file,
            "state": self.state,
            "bytes": size,
            "reason": self.reason or None,
        }


def _version(app: App) -> object:
    from iothub.cli.served_machine import ServedMachine

    return ServedMachine(app, ()).features()


def _settings(app: App) -> object:
    try:
        return config.rows(app.loaded.values(), is_text=False)
    except ConfigError:
        app.load_checked()  # names every mistake
        raise


def _status(app: App) -> object:
    holder = app.data_dir.holder()
    if holder is None:
        raise UnavailableError(f"no hub runs in {app.data_dir.path}")
    return status.facts_of(app, holder)


def _alarms(app: App) -> object:
    return alarm.raised(app)


def _metrics(app: App) -> object:
    address = (app.data_dir.read_hub() or {}).get("http") if app.data_dir.holder() else None
    if not isinstance(address, str) or not address:
        raise NotFoundError("no hub runs here with an HTTP port (the setting http.port)")
    return status.read_page(address, "/metrics", _METRICS_BYTES).decode(errors="replace")


def _cluster(app: App) -> object:
    return app.hub.ask(Verb.CLUSTER_STATUS, "", {}).rows


def _hubs(app: App) -> object:
    from iothub_tenants.accounts import hubs
    from iothub_tenants.accounts.plain import plain

    return [plain(row) for row in hubs.read(app.store()).rows]


def _jobs(app: App) -> object:
    from iothub_tenants.accounts import job_runs

    return [run_row(run) for name in CATALOGUE for run in job_runs.history(app.store(), name, _RUNS)]


def _doctor(app: App) -> object:
    from iothub.cli import doctor

    return [doctor.row(finding) for finding in doctor.findings(app, app.loaded.config)]


def _files(app: App) -> object:
    """Sizes alone: what is in the files stays where it is."""
    path = app.data_dir.path
    rows: list[dict[str, object]] = []
    for folder, _, names in os.walk(path):
        for name in names[: _FILES - len(rows)]:
            file = Path(folder, name)
            try:
                found = file.lstat()
            except OSError:  # gone meanwhile
                continue
            size = {"bytes": found.st_size, "bytes_on_disk": found.st_blocks * 512}
            when = {"changed": time_of(int(found.st_mtime * 1000)), "mode": stat.filemode(found.st_mode)}
            rows.append({"name": str(file.relative_to(path)), **size, **when})
    return sorted(rows, key=lambda row: str(row["name"]))


def _log(app: App) -> object:
    """The end of the log, if the standard error of the hub's process is a file."""
    holder = app.data_dir.holder()
    if holder is None:
        raise NotFoundError(f"no hub runs here that has a log; {_NO_LOG}")
    opened = Path(f"/proc/{holder.pid}/fd")
    lock = app.data_dir.lock_file
    if not any(os.path.exists(each) and os.path.samefile(each, lock) for each in opened.iterdir()):
        raise NotFoundError(f"process {holder.pid} is not the hub: it runs in another container; {_NO_LOG}")
    if not stat.S_ISREG((opened / "2").stat().st_mode):
        raise NotFoundError(f"the hub's log does not go to a file; {_NO_LOG}")
    return _of_the_hub(_end_of(opened / "2"))


def _end_of(file: Path) -> str:
    with file.open("rb") as log:
        is_cut = log.seek(0, os.SEEK_END) > LOG_BYTES
        log.seek(-LOG_BYTES if is_cut else 0, os.SEEK_END if is_cut else os.SEEK_SET)
        octets = log.read(LOG_BYTES)
    return (octets.partition(b"\n")[2] if is_cut else octets).decode(errors="replace")


def _of_the_hub(text: str) -> str:
    """Leave out what others have written to the same file: whoever starts the hub may print passwords there."""
    lines = text.splitlines(keepends=True)
    own = [line for line in lines if _OF_THE_HUB.match(line)]
    left_out = len(lines) - len(own)
    return "".join([*own, f"(lines that are not the hub's, left out: {left_out})\n"] if left_out else own)


PARTS = {
    "version": Part("version.json", _version),
    "settings": Part("settings.json", _settings),
    "status": Part("status.json", _status),
    "alarms": Part("alarms.json", _alarms),
    "metrics": Part("metrics.txt", _metrics),
    "cluster": Part("cluster.json", _cluster),
    "hubs": Part("hubs.json", _hubs),
    "jobs": Part("jobs.json", _jobs),
    "doctor": Part("doctor.json", _doctor),
    "files": Part("files.json", _files),
    "log": Part("log.txt", _log),
}


@click.command("bundle", cls=Command)
@click.option(
    "--file", type=NamedPath(), help="The archive to write. Default: iothub-bundle-TIME.tar.gz in this folder."
)
@click.option(
    "--without", "left_out", multiple=True, type=click.Choice(list(PARTS)), help="Leave this part out (repeatable)."
)
@click.option("--force", "is_forced", is_flag=True, help="Overwrite an existing file.")
@click.pass_obj
def command(app: App, file: Path | None, left_out: tuple[str, ...], is_forced: bool) -> None:
    """Write an archive (tar.gz, readable by you only) for whoever helps you: what this hub is, what it is set to, and how it is.

    It has the version, the settings, status, alarms, metrics, the hubs of the cluster, the last runs of each job, what `iothub doctor` finds,
    the sizes of the files in the data directory, and the hub's lines at the end of the log if that goes to a file. It has no passwords, keys,
    accounts of devices or messages. Names of tenants and devices, and addresses can be in it: look through it before you send it.

    Works with a stopped hub, too. Prints what is in the archive, and what is not, with the reason; `manifest.json` in it says the same.
    Exit code 0 when the archive is written.

    Examples:
      iothub --data-dir ./hub bundle
      iothub --data-dir ./hub bundle --file hub-1.tar.gz --without log --without metrics
    """
    if not app.data_dir.has_config:
        app.data_dir.require_initialised()
    made_ms = time.time_ns() // 1_000_000
    name = f"iothub-bundle-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime(made_ms / 1000))}"
    target = file or Path(f"{name}.tar.gz")
    require_free(target, is_forced=is_forced)
    app.patience_s = status.ACCOUNTS_TIMEOUT_S
    redaction = Redaction(_secret_files(app))
    taken = [_take(app, redaction, each, each in left_out) for each in PARTS]
    rows = [each.row() for each in taken]
    manifest = _json({"made": time_of(made_ms), "parts": redaction.value(rows)})
    content = _archive(name, made_ms, [*taken, Taken("manifest", "manifest.json", "taken", manifest)])
    try:
        write_new_file(target, content, _MODE, is_forced=is_forced)
    except OSError as error:
        raise UnavailableError(f"{target}: cannot be written: {error.strerror}") from None
    if app.form == "table":
        app.rows(rows, "name", "state", "bytes", "reason")
    app.done(
        f"wrote {target}, {len(content)} bytes, readable by you only: look through it before you send it",
        {"name": "bundle", "file": str(target), "bytes": len(content), "parts": rows},
    )


def _take(app: App, redaction: Redaction, name: str, is_left_out: bool) -> Taken:
    part = PARTS[name]
    if is_left_out:
        return Taken(name, part.file, "left out", reason="--without")
    try:
        found = part.take(app)
    except IotHubError as error:
        reason = "; ".join([str(error), *error.details])
        return Taken(name, part.file, "missing", reason=redaction.text(reason))
    except OSError as error:
        return Taken(name, part.file, "missing", reason=f"cannot be read: {error.strerror or error}")
    content = redaction.text(found).encode() if isinstance(found, str) else _json(redaction.value(found))
    return Taken(name, part.file, "taken", content)


def _secret_files(app: App) -> Iterator[Path]:
    """Yield every file that may hold a secret: those of the data directory, and those that the settings name."""
    data_dir = app.data_dir
    yield from (data_dir.pepper_file, data_dir.url_file)
    yield from (data_dir.path / "cluster").glob("**/*key*")
    try:
        values = list(app.loaded.values())
    except ConfigError:
        return
    for name, toml, _ in values:
        if name.endswith("_file") and not name.endswith(_PUBLIC):
            file = tomllib.loads(f"value = {toml}")["value"]
            if file:
                yield Path(file)


def _json(content: object) -> bytes:
    return f"{json.dumps(content, indent=2, ensure_ascii=False, default=str)}\n".encode()


def _archive(folder: str, made_ms: int, parts: list[Taken]) -> bytes:
    octets = io.BytesIO()
    with tarfile.open(fileobj=octets, mode="w:gz") as archive:
        for part in parts:
            if part.content is not None:
                entry = tarfile.TarInfo(f"{folder}/{part.file}")
                entry.size, entry.mode, entry.mtime = len(part.content), _MODE, made_ms // 1000
                archive.addfile(entry, io.BytesIO(part.content))
    return octets.getvalue()
