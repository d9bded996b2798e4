"""The machine: the data directory and its files, free space and speed of its disk, the clock, the pepper.

Knows names of files and no table. The files of a running hub are opened read-only.
"""

from __future__ import annotations

import ctypes
import os
import resource
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path

from iothub.base.errors import BackendError, IotHubError
from iothub.base.units import format_size, format_size_roughly
from iothub.config.datadir import DataDir
from iothub.config.sections import Config
from iothub.doctor.findings import Check, Finding, State, timed
from iothub.hub.from_settings import plane_limits
from iothub.hub.stores.needs import own_descriptors, require_descriptors, room_bytes
from iothub.net.descriptors import UNLIMITED, file_limit, least_limit
from iothub_services.metrics import probes
from iothub_services.sqlite.database import inspect_file

SLOW_SYNC_S = 0.05
_DIRECTORY = "data directory"
_DESCRIPTORS = "file descriptors"
_SYNCS = 5
_SYNCED_BYTES = 4096
_AHEAD_S = 5.0  # so much the clock may have gone back since a hub last lived here
_TIMEX_BYTES = 512  # `struct timex` is shorter everywhere
_CLOCK_UNSYNCHRONISED = 5


def checks(data_dir: DataDir, settings: Config, files: Mapping[Path, int]) -> list[Check]:
    """`files`: the SQLite files that these settings use, each with the schema version that this program knows."""
    named = [(str(file.relative_to(data_dir.path)), file, known) for file, known in files.items()]
    return [
        Check(_DIRECTORY, lambda: _directory(data_dir, settings)),
        Check("disk sync", lambda: _sync(data_dir.path)),
        Check("clock", lambda: clock(data_dir.last_heartbeat(), time.time(), _is_clock_synchronised)),
        Check("pepper", lambda: _pepper(data_dir, settings)),
        Check(_DESCRIPTORS, lambda: descriptors(settings, _file_limit(data_dir))),
        *(Check(name, partial(_file, name, file, known)) for name, file, known in named),
    ]


def checks_before(data_dir: DataDir) -> list[Check]:
    """The checks that are possible with a configuration only."""
    return [
        Check(_DIRECTORY, lambda: _directory_before(data_dir)),
        Check("disk sync", lambda: _sync(data_dir.path)),
        Check("clock", lambda: clock(None, time.time(), _is_clock_synchronised)),
    ]


def _directory_before(data_dir: DataDir) -> Iterator[Finding]:
    data_dir.require_writable()
    text = f"{data_dir.path}: has a configuration, but is not initialised"
    yield Finding(_DIRECTORY, State.FAIL, text, "when the accounts answer, run: iothub init")


def _directory(data_dir: DataDir, settings: Config) -> Iterator[Finding]:
    name, path = _DIRECTORY, data_dir.path
    data_dir.require_initialised()
    holder = data_dir.holder()
    data_dir.require_writable(0 if holder else room_bytes(settings, data_dir))  # a running hub needs the room itself
    free = probes.disk_free_bytes(path)
    text = f"{path}: {format_size_roughly(free)} free"
    if free < settings.alarms.disk_free:
        wanted = format_size(settings.alarms.disk_free)
        yield Finding(
            name, State.WARN, text, f"free some disk space; the hub raises an alarm below {wanted} (alarms.disk_free)"
        )
    else:
        yield Finding(name, State.OK, text)
    yield Finding("hub", State.OK, f"running: {holder}" if holder is not None else "not running on this data directory")


def _sync(path: Path) -> Iterator[Finding]:
    """Measure a disk sync, which every acknowledgement of a durable message waits for, if the stores are files."""
    took = [_one_sync(path) for _ in range(_SYNCS)]
    median = statistics.median(took)
    text = f"{_SYNCED_BYTES} bytes, median of {_SYNCS}; the slowest took {max(took) * 1000:.1f} ms"
    if median > SLOW_SYNC_S:
        yield Finding(
            "disk sync",
            State.WARN,
            text,
            "use a faster disk; this one allows only few durable messages per second",
            median,
        )
    else:
        yield Finding("disk sync", State.OK, text, seconds=median)


def _one_sync(path: Path) -> float:
    try:
        with tempfile.TemporaryFile(dir=path) as file:
            file.write(os.urandom(_SYNCED_BYTES))
            file.flush()
            return timed(lambda: os.fsync(file.fileno()))[1]
    except OSError as error:
        raise IotHubError(f"{path}: cannot be written: {error.strerror}") from None


def clock(last_heartbeat: float | None, now: float, is_synchronised: Callable[[], bool | None]) -> Iterator[Finding]:
    """Expiry and bans use the wall clock, and message ids and events contain it."""
    if last_heartbeat is not None and last_heartbeat > now + _AHEAD_S:
        behind = last_heartbeat - now
        yield Finding(
            "clock", State.WARN, f"{behind:.0f} s behind the time at which a hub last ran here", "set the clock"
        )
        return
    text = {
        True: "synchronised",
        False: "not synchronised with a time server",
        None: "the system does not say whether it is synchronised",
    }
    answer = is_synchronised()
    advice = "start a time service (chrony, systemd-timesyncd)" if answer is False else ""
    yield Finding("clock", State.WARN if answer is False else State.OK, text[answer], advice)


def _is_clock_synchronised() -> bool | None:
    """Ask the kernel; None if it does not say."""
    try:
        answer = int(ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(_TIMEX_BYTES)))
    except (AttributeError, OSError):
        return None
    return None if answer < 0 else answer != _CLOCK_UNSYNCHRONISED


def _pepper(data_dir: DataDir, settings: Config) -> Iterator[Finding]:
    data_dir.pepper(settings.auth.pepper_file)
    yield Finding(
        "pepper", State.OK, f"{settings.auth.pepper_file or data_dir.pepper_file}: readable by its owner only"
    )


def _file_limit(data_dir: DataDir) -> int:
    """Return the limit of the running hub, else the one that a hub would have that is started as this command was."""
    holder = data_dir.holder()
    if holder is not None:
        with suppress(OSError):  # it is gone, or another user's
            return file_limit(holder.pid)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return UNLIMITED if hard == resource.RLIM_INFINITY else hard


def descriptors(settings: Config, limit: int) -> Iterator[Finding]:
    """Check whether as many clients can connect as the settings allow."""
    require_descriptors(settings, limit, lambda: 0)  # what a hub would inherit is not known here
    wanted = plane_limits(settings).connections
    needed = least_limit(own_descriptors(settings) + wanted)
    text = f"limit {limit}, max_connections of all listeners {wanted}"
    if limit < needed:
        advice = f"raise the limit to at least {needed} (LimitNOFILE in systemd, `ulimit -n`)"
        yield Finding(_DESCRIPTORS, State.WARN, text, f"{advice}, or lower listeners.NAME.max_connections")
    else:
        yield Finding(_DESCRIPTORS, State.OK, text)


def _file(name: str, path: Path, known: int) -> Iterator[Finding]:
    """`name`: below the data directory."""
    if not path.exists():
        yield Finding(name, State.OK, "does not exist yet: the first `iothub serve` creates it")
        return
    try:
        seen, seconds = timed(partial(inspect_file, path))
    except BackendError as error:
        advice = (
            "" if error.retryable else "restore it from a backup; a start sets it aside and copies its readable rows"
        )
        yield Finding(name, State.FAIL, str(error), advice)
        return
    if seen.version > known:
        text = f"schema version {seen.version}, this program knows up to {known}: the next start is refused"
        yield Finding(name, State.FAIL, text, "start the newer program, or restore a backup", seconds)
        return
    size = format_size_roughly(path.stat().st_size)
    text = f"{size}, schema version {seen.version}" if seen.tables else "empty"
    yield Finding(name, State.OK, text, seconds=seconds)
