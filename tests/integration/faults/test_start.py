"""Starts that must not happen: each ends with its exit code and one clear line, and harms nothing."""

from __future__ import annotations

import json
import socket
import sqlite3
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from iothub.base.units import format_size_roughly
from iothub.config.datadir import DataDir
from iothub.config.sections import Config
from iothub.hub.stores.needs import room_bytes
from tests.support.hubs.hub import IOTHUB, Hub, iothub
from tests.support.hubs.wrapped import SmallDiskHub, in_own_mounts
from tests.support.ports import free_port
from tests.support.waiting import PATIENCE_S


def serve(data_dir: Path, *words: str, prefix: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
    """The program itself, in what the prefix makes around it."""
    return subprocess.run(
        [*prefix, str(IOTHUB), "--data-dir", str(data_dir), "serve", *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )


def serve_soon(data_dir: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """The same, forked from a process that has loaded it."""
    return iothub(data_dir, "serve", *words, check=False)


def the_line(done: subprocess.CompletedProcess[str]) -> str:
    """The last line of standard error is for a person; there is no traceback anywhere."""
    assert "Traceback" not in done.stdout + done.stderr
    return done.stderr.strip().splitlines()[-1]


@pytest.mark.parametrize("listener", ["listeners.tcp", "http"])
def test_a_port_in_use_is_named(hub: Hub, listener: str) -> None:
    with socket.socket() as rival:
        rival.bind(("127.0.0.1", 0))
        rival.listen()
        port = rival.getsockname()[1]
        words = [] if listener == "listeners.tcp" else ["--set", f"listeners.tcp.port={free_port()}"]

        done = serve_soon(hub.data_dir, *words, "--set", f"{listener}.port={port}")

    assert done.returncode == 7
    assert str(port) in the_line(done)


def test_a_read_only_directory_is_named(hub: Hub) -> None:
    """On a file system that is mounted read-only, as root has every right elsewhere."""
    path = hub.data_dir
    prefix = in_own_mounts(f"mount --bind {path} {path}; mount -o remount,bind,ro {path}")

    done = serve(path, "--set", f"listeners.tcp.port={free_port()}", prefix=prefix)

    assert done.returncode == 7
    assert str(path) in the_line(done)


def test_a_backup_that_is_mounted_read_only_is_listed(hub: Hub) -> None:
    """To look into it before it is restored; nothing can be made beside its files."""
    path = hub.data_dir
    prefix = in_own_mounts(f"mount --bind {path} {path}; mount -o remount,bind,ro {path}")
    words = [*prefix, str(IOTHUB), "--data-dir", str(path)]

    done = subprocess.run([*words, "tenant", "list", "-o", "json"], capture_output=True, text=True, check=False)
    refused = subprocess.run([*words, "tenant", "create", "x1"], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")
    assert [row["name"] for row in json.loads(done.stdout)] == ["acme"]
    assert (refused.returncode, "readonly" in the_line(refused)) == (7, True)


def on_small_disk(hub: Hub, leave_kib: int, script: str) -> subprocess.CompletedProcess[str]:
    """Run a script on a copy of the hub's directory, on a disk with so much room; "$@" starts the hub, and "$0" is the directory."""
    small = SmallDiskHub(hub.data_dir, {"tcp": hub.ports.get("tcp", free_port())}, leave_kib=leave_kib)
    words = small.command()[len(small.prefix) :]
    command = [*small.prefix, "sh", "-c", script, str(hub.data_dir), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S)


@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize("leave_kib", [0, 300, 900])
def test_a_full_disk_is_named_with_what_to_do(leave_kib: int, is_first: bool, hub: Hub) -> None:
    """A start and its check say the same and make no file: with room for no byte, for some files, and for nearly all."""
    if not is_first:
        hub.start()
        hub.stop()
    needed = room_bytes(Config(), DataDir(hub.data_dir))
    leave_kib = min(leave_kib, (needed >> 10) - 4)

    before, checked = on_small_disk(hub, leave_kib, 'ls -A "$0"'), on_small_disk(hub, leave_kib, '"$@" --check')
    started = on_small_disk(hub, leave_kib, '"$@"; code=$?; ls -A "$0"; exit $code')

    assert (checked.returncode, started.returncode) == (7, 7)
    assert checked.stderr == started.stderr
    free, room = (format_size_roughly(size) for size in (leave_kib << 10, needed))
    assert the_line(started) == (
        f"iothub: {hub.data_dir}: the disk is full ({free} free, a start needs {room}); free some space first"
    )
    assert started.stdout == before.stdout


@pytest.mark.parametrize("is_first", [True, False])
def test_a_disk_with_as_much_room_as_a_start_needs_is_enough(is_first: bool, hub: Hub) -> None:
    """For the check, which leaves no file behind, and for the start itself."""
    if not is_first:
        hub.start()
        hub.stop()
    needed_kib = room_bytes(Config(), DataDir(hub.data_dir)) + 4095 >> 12 << 2

    checked = on_small_disk(hub, needed_kib, 'ls -A "$0"; echo; "$@" --check; ls -A "$0"')
    small = SmallDiskHub(hub.data_dir, leave_kib=needed_kib)
    try:
        small.start()

        before, _, after = checked.stdout.partition("\n\n")
        assert (checked.stderr, after.split()) == ("nothing keeps the hub from starting\n", before.split())
        assert small.stop() == 0
    finally:
        small.close()


def test_a_memory_limit_below_the_hubs_own_needs_is_named(hub: Hub) -> None:
    """The smallest limit that the settings take: it says what is used, and never that it is ready."""
    done = serve(hub.data_dir, "--set", f"listeners.tcp.port={free_port()}", "--set", "overload.memory_limit=64MiB")

    assert done.returncode == 2
    assert the_line(done).startswith("iothub: overload.memory_limit: 64MiB, but the hub uses ")
    assert "ready" not in done.stderr


def test_a_file_in_place_of_the_directory_is_named(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_text("not a directory")

    done = serve_soon(path)

    assert done.returncode == 7
    assert f"{path} is a file" in the_line(done)


@pytest.mark.parametrize("name", ["accounts.db", "queues.db", "retained.db", "events.db", "state.db"])
def test_a_future_schema_is_refused(hub: Hub, name: str) -> None:
    """Exit 4, the file and its version named, and not a byte of it changed."""
    hub.start()
    hub.stop()
    path = hub.data_dir / name
    make_future(path)
    before = path.read_bytes()

    done = serve_soon(hub.data_dir, "--set", f"listeners.tcp.port={free_port()}")

    assert done.returncode == 4
    assert name in the_line(done)
    assert path.read_bytes() == before
    assert not list(hub.data_dir.glob(f"{name}.*damaged*"))


def make_future(path: Path) -> None:
    connection = sqlite3.connect(path)
    if path.name == "accounts.db":
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    else:
        connection.execute("PRAGMA user_version = 9999")
    connection.commit()
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    for rest in ("-wal", "-shm"):
        path.with_name(path.name + rest).unlink(missing_ok=True)
