"""The data directory: made once, held by one process, honest about why it cannot be used."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from iothub.base.errors import ConfigError, ConflictError, NotFoundError, UnavailableError
from iothub.config.datadir import DataDir, Holder
from iothub.config.loader import load


@pytest.fixture
def made(tmp_path: Path) -> DataDir:
    directory = DataDir(tmp_path / "hub")
    directory.prepare()
    directory.finish()
    return directory


def test_new_directory_keeps_its_secrets_to_its_owner(made: DataDir) -> None:
    """Class 22: nobody else may read the pepper or look into the directory."""
    assert stat.S_IMODE(made.path.stat().st_mode) == 0o700
    assert stat.S_IMODE(made.pepper_file.stat().st_mode) == 0o600
    assert len(made.pepper()) == 32


def test_first_configuration_is_valid_and_changes_nothing(made: DataDir) -> None:
    """Also after `init` only listeners.tcp on loopback is on."""
    assert load(file=made.config_file).config == load().config


def test_initialised_directory_is_refused_a_second_time(made: DataDir) -> None:
    made.lock("iothub init").release()

    with pytest.raises(ConflictError, match="is initialised already"):
        made.require_fresh()


def test_preparing_again_after_a_crash_keeps_the_pepper(tmp_path: Path) -> None:
    """The configuration file is written last, so that a killed `init` can be run again."""
    directory = DataDir(tmp_path)
    directory.prepare()
    pepper = directory.pepper()

    directory.require_fresh()
    directory.prepare()

    assert directory.pepper() == pepper


def test_directory_with_what_another_hub_gave_it_is_not_done(made: DataDir) -> None:
    """Configuration and pepper, copied: `init` is still to come, and may fail and be repeated."""
    made.require_fresh()
    made.prepare()
    made.lock("iothub init").release()
    assert not made.is_initialised

    made.require_fresh()
    made.finish()
    assert made.is_initialised
    with pytest.raises(ConflictError, match="is initialised already"):
        made.require_fresh()


def test_directory_without_init_names_the_command(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=f"run `iothub --data-dir {tmp_path} init` first"):
        DataDir(tmp_path).require_initialised()


def test_pepper_that_others_can_read_is_refused(made: DataDir) -> None:
    made.pepper_file.chmod(0o644)

    with pytest.raises(ConfigError, match="readable by others"):
        made.pepper()


def test_pepper_that_was_cut_is_refused(made: DataDir) -> None:
    made.pepper_file.write_bytes(b"short")

    with pytest.raises(ConfigError, match="expected at least 32 bytes, got 5"):
        made.pepper()


def test_second_lock_is_refused_with_the_holder(made: DataDir) -> None:
    lock = made.lock("iothub serve")
    lock.announce("127.0.0.1:1883")

    with pytest.raises(ConflictError, match=rf"process {os.getpid()} \(iothub serve, listening on 127.0.0.1:1883\)"):
        made.lock("iothub serve")
    assert made.holder() == Holder(os.getpid(), "iothub serve", "127.0.0.1:1883")
    lock.release()
    assert made.holder() is None
    made.lock("iothub serve").release()


def test_lock_of_a_killed_process_is_free(made: DataDir) -> None:
    """The kernel releases it: no stale lock file ever has to be removed by hand."""
    code = (
        "import os, sys; from pathlib import Path; from iothub.config.datadir import DataDir\n"
        "lock = DataDir(Path(sys.argv[1])).lock('iothub serve'); os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", code, str(made.path)], check=False, timeout=30)

    assert json.loads(made.lock_file.read_text())["command"] == "iothub serve"
    assert made.holder() is None
    made.lock("iothub serve").release()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_full_disk_is_said_with_the_same_advice_by_whoever_writes(
    made: DataDir, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Taking the lock, and writing the address into it, as `init` says it; the lock is free again."""
    lock = made.lock("iothub serve")

    def is_full(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as full:
        full.setattr(os, "pwrite", is_full)
        with pytest.raises(
            UnavailableError, match=rf"^{made.path}: the disk is full \([\d.]+ \w+ free\); free some space first$"
        ):
            lock.announce("127.0.0.1:1883")
        lock.release()
        with pytest.raises(
            UnavailableError, match=rf"^{made.path}: the disk is full \([\d.]+ \w+ free\); free some space first$"
        ):
            made.lock("iothub serve")

    made.lock("iothub serve").release()


def test_lock_on_a_disk_without_room_is_free_for_the_next(made: DataDir, monkeypatch: pytest.MonkeyPatch) -> None:
    """And nobody takes the room of the process that has the lock, if only to try."""
    tried: list[int] = []

    def refuse(_descriptor: int, _offset: int, size: int) -> None:
        tried.append(size)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("os.posix_fallocate", refuse)
    with pytest.raises(UnavailableError, match="the disk is full"):
        made.lock("iothub serve", 4096)

    lock = made.lock("iothub restore")
    with pytest.raises(ConflictError, match="is in use by"):
        made.lock("iothub serve", 4096)

    assert tried == [4096]
    lock.release()


def test_lock_that_the_system_refuses_is_named(made: DataDir, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)

    with pytest.raises(UnavailableError, match=f"^{made.lock_file}: cannot be locked: No locks available$"):
        made.lock("iothub serve")


def test_directory_that_cannot_be_made_is_unavailable(tmp_path: Path) -> None:
    """A file in the way, as on a read-only mount, is one line and exit code 7."""
    (tmp_path / "file").write_text("")

    with pytest.raises(UnavailableError) as caught:
        DataDir(tmp_path / "file" / "hub").prepare()
    assert caught.value.exit_code == 7
    assert "\n" not in str(caught.value)


def test_directory_that_cannot_be_written_is_unavailable(made: DataDir, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: object, **_options: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr("tempfile.mkstemp", refuse)

    with pytest.raises(UnavailableError, match="read-only file system"):
        made.require_writable()


def test_room_that_is_needed_is_tried_and_left_free(made: DataDir) -> None:
    before = sorted(made.path.iterdir())

    made.require_writable(1 << 20)

    assert sorted(made.path.iterdir()) == before


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_disk_without_the_room_that_is_needed_is_unavailable(
    number: int, made: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A quota of the hub's user is a full disk; nothing stays behind."""
    before = sorted(made.path.iterdir())

    def refuse(_descriptor: int, _offset: int, size: int) -> None:
        assert size == 448 << 10
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("os.posix_fallocate", refuse)

    with pytest.raises(
        UnavailableError,
        match=rf"^{made.path}: the disk is full \([\d.]+ \w+ free, a start needs 448\.0 KiB\); free some space first$",
    ):
        made.require_writable(448 << 10)
    assert sorted(made.path.iterdir()) == before


def test_hub_facts_are_read_back_and_removed(made: DataDir) -> None:
    made.write_hub({"pid": 7, "listeners": {"tcp": "127.0.0.1:1883"}})

    assert made.read_hub() == {"pid": 7, "listeners": {"tcp": "127.0.0.1:1883"}}
    made.remove_hub()
    made.remove_hub()
    assert made.read_hub() is None


def test_damaged_hub_facts_are_no_facts(made: DataDir) -> None:
    made.hub_file.write_text('{"pid": ')

    assert made.read_hub() is None


def test_last_applied_change_is_remembered(made: DataDir) -> None:
    """None where no hub has run yet, and where the note is damaged."""
    assert made.read_applied() is None
    made.write_applied(17)
    assert made.read_applied() == 17
    made.applied_file.write_text('{"change": "')
    assert made.read_applied() is None


def test_store_that_has_gone_is_known(tmp_path: Path) -> None:
    """All stores are made at once: one that is missing or empty beside others has been lost; none at all is a hub that never ran."""
    data_dir = DataDir(tmp_path)
    assert data_dir.lost_stores() == []

    for path in (data_dir.queues, data_dir.retained, data_dir.events, data_dir.state):
        path.write_bytes(b"x")
    assert data_dir.lost_stores() == []

    data_dir.queues.write_bytes(b"")
    data_dir.retained.unlink()
    assert data_dir.lost_stores() == [data_dir.queues, data_dir.retained]


def test_heartbeat_tells_when_a_hub_lived(tmp_path: Path) -> None:
    data_dir = DataDir(tmp_path)
    assert data_dir.last_heartbeat() is None

    data_dir.write_heartbeat()
    os.utime(data_dir.heartbeat_file, (1000.0, 1000.0))
    assert data_dir.last_heartbeat() == 1000.0

    data_dir.write_heartbeat()
    assert (data_dir.last_heartbeat() or 0) > 1000.0


def test_incarnation_of_the_last_hub_is_remembered(made: DataDir) -> None:
    """Where hubs share stores: its successor in this directory knows that it is dead."""
    assert made.read_member() is None
    made.write_member(1_700_000_000_000)
    assert made.read_member() == 1_700_000_000_000
    made.member_file.write_text('{"incarnation": "x"}')
    assert made.read_member() is None


def test_pepper_is_made_where_the_settings_have_it(tmp_path: Path) -> None:
    """And nowhere else; the directory counts as initialised all the same, with accounts and stores on servers, too."""
    directory, file = DataDir(tmp_path / "hub"), tmp_path / "shared-pepper"
    directory.require_fresh(file)
    directory.prepare(file)
    first = directory.pepper(file)
    directory.lock("iothub init").release()
    directory.prepare(file, has_accounts=True)  # again after a crash
    directory.finish()

    assert directory.pepper(file) == first
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert not directory.pepper_file.exists()
    directory.require_initialised()
    with pytest.raises(ConflictError, match="is initialised already"):
        directory.require_fresh(file)


@pytest.mark.parametrize("is_elsewhere", [True, False])
def test_accounts_of_others_need_their_pepper(tmp_path: Path, is_elsewhere: bool) -> None:
    """A new one would fit none of their secrets; nothing half-made is left."""
    directory = DataDir(tmp_path / "hub")
    with pytest.raises(
        UnavailableError, match=r"pepper is missing: .*or copy it from another hub with the same accounts"
    ):
        directory.prepare(tmp_path / "pepper" if is_elsewhere else None, has_accounts=True)

    assert list(tmp_path.iterdir()) == []


def test_pepper_that_cannot_be_made_leaves_nothing(tmp_path: Path) -> None:
    """One line that says what to do."""
    with pytest.raises(UnavailableError, match=r"/keys/pepper: the directory .*/keys does not exist; create it first"):
        DataDir(tmp_path / "hub").prepare(tmp_path / "keys" / "pepper")
    assert list(tmp_path.iterdir()) == []

    (tmp_path / "pepper").write_bytes(b"short")
    (tmp_path / "pepper").chmod(0o600)
    with pytest.raises(ConfigError, match="expected at least 32 bytes"):
        DataDir(tmp_path / "hub").prepare(tmp_path / "pepper")
    assert [path.name for path in tmp_path.iterdir()] == ["pepper"]
