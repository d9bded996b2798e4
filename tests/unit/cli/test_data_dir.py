"""The data directory as a command finds it: not there, another user's, or without something that was there."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from iothub.base.errors import BackendError, ConfigError
from iothub.cli.app import App
from iothub.cli.hints import Hints
from iothub.config.datadir import DataDir
from iothub.config.sections import Config
from tests.support.in_process.command import Cli, Result


def test_directory_without_a_name_is_a_mistake(call: Callable[..., Result]) -> None:
    """A variable that is not set must not mean the working directory."""
    result = call("--data-dir", "", "tenant", "list")

    assert result.code == 2
    assert "the name is empty" in result.err


def test_directory_of_another_user_is_unavailable(
    cli: Cli, call: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The usual mistake: `iothub` without sudo -u. One line, for whatever is asked."""
    stat_of = Path.stat

    def deny(path: Path, **options: bool) -> os.stat_result:
        if path.parent == cli.data_dir:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return stat_of(path, **options)

    monkeypatch.setattr(Path, "stat", deny)
    for words in (("tenant", "list"), ("status",), ("init",), ("serve",), ("config", "show")):
        result = call("--data-dir", str(cli.data_dir), *words)
        assert result.code == 7, (words, result)
        assert (result.err.count("\n"), "permission denied" in result.err) == (1, True), words


def test_directory_without_init_names_the_command(call: Callable[..., Result], tmp_path: Path) -> None:
    for words in (("tenant", "list"), ("status",), ("db", "status"), ("serve",)):
        result = call("--data-dir", str(tmp_path), *words)

        assert result.code == 3, words
        assert f"run `iothub --data-dir {tmp_path} init` first" in result.err


def test_init_refuses_an_initialised_directory(cli: Cli) -> None:
    result = cli("init", code=4)

    assert "is initialised already" in result.err


@pytest.mark.parametrize("below", ["", "hub", "deep/hub"])
def test_init_of_a_path_that_is_a_file_says_what_to_do(call: Callable[..., Result], tmp_path: Path, below: str) -> None:
    """The file itself, or one on the way."""
    (tmp_path / "file").write_text("mine")

    result = call("--data-dir", str(tmp_path / "file" / below), "init")

    assert result.code == 7
    assert result.err.endswith("file is a file, expected a directory: use another --data-dir\n")
    assert (tmp_path / "file").read_text() == "mine"


def test_init_beside_a_configuration_uses_it(call: Callable[..., Result], tmp_path: Path) -> None:
    """Written before the hub was: it is neither overwritten nor taken for a hub."""
    mine = 'config_version = 1\n[node]\nname = "mine"\n'
    (tmp_path / "iothub.toml").write_text(mine)
    assert "is not initialised yet" in call("--data-dir", str(tmp_path), "serve").err

    result = call("--data-dir", str(tmp_path), "init")

    assert result.code == 0
    assert f"with the settings of {tmp_path / 'iothub.toml'}" in result.err
    assert (tmp_path / "iothub.toml").read_text() == mine
    assert call("--data-dir", str(tmp_path), "init").code == 4


def test_init_again_after_a_crash_completes(cli: Cli) -> None:
    """The configuration file is written last; until it is there `init` may be repeated."""
    pepper = DataDir(cli.data_dir).pepper()
    (cli.data_dir / "iothub.toml").unlink()

    cli("init")

    assert DataDir(cli.data_dir).pepper() == pepper
    assert [plan["name"] for plan in cli.rows("plan", "list")] == ["standard", "unlimited"]


def test_lost_configuration_is_no_obstacle(cli: Cli) -> None:
    """Accounts and pepper are the hub; what is missing is said, and defaults hold."""
    cli("tenant", "create", "acme")
    (cli.data_dir / "iothub.toml").unlink()

    result = cli("tenant", "list")

    assert "acme" in result.out
    assert "iothub.toml is missing, so every setting has its default" in result.err
    assert f"`iothub --data-dir {cli.data_dir} init`" in result.err
    cli("init")
    assert cli("tenant", "list").err == ""


@pytest.mark.parametrize("is_empty", [True, False])
@pytest.mark.parametrize("has_worked", [True, False])
def test_lost_accounts_are_not_made_anew(cli: Cli, is_empty: bool, has_worked: bool) -> None:
    """New accounts beside old stores would be tenants that inherit strangers' sessions: a backup is what helps."""
    accounts = cli.data_dir / "accounts.db"
    accounts.unlink()
    if is_empty:
        accounts.touch()
    if has_worked:
        (cli.data_dir / "queues.db").write_bytes(b"x")
        (cli.data_dir / "iothub.toml").unlink()

    for words in (("tenant", "list"), ("db", "upgrade"), ("db", "status"), ("serve",)):
        result = cli(*words, code=7)
        how = "empty" if is_empty else "missing"
        assert f"accounts.db is {how}: the accounts of this hub are lost; restore a backup" in result.err, words
    cli("init", code=7 if has_worked else 4)


def test_lost_pepper_is_to_be_put_back(cli: Cli) -> None:
    """A new one would fit no secret that was ever generated."""
    (cli.data_dir / "pepper").unlink()

    assert "pepper is missing" in cli("tenant", "list", code=7).err
    assert "restore your copy of the file (mode 0600)" in cli("tenant", "list", code=7).err
    (cli.data_dir / "iothub.toml").unlink()
    assert "pepper is missing" in cli("init", code=7).err
    assert not (cli.data_dir / "pepper").exists()


def test_read_only_file_system_is_called_so(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite says that it cannot open the file, which is true and no help."""

    def fail(_store: object) -> None:
        raise BackendError("unable to open database file", retryable=True)

    monkeypatch.setattr("iothub_tenants.accounts.store.AccountStore.check", fail)
    assert "unable to open" in cli("tenant", "list", code=7).err

    monkeypatch.setattr("os.statvfs", lambda _path: SimpleNamespace(f_flag=os.ST_RDONLY))
    assert "is on a read-only file system" in cli("tenant", "list", code=7).err


def test_backup_on_a_read_only_file_system_is_listed(acme: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """What SQLite needs beside a file cannot be made there; a change is refused."""
    status = SimpleNamespace(f_flag=os.ST_RDONLY, f_bavail=0, f_frsize=4096)
    monkeypatch.setattr("os.statvfs", lambda _path: status)
    monkeypatch.setattr("iothub_tenants.accounts.database.keep_private", lambda _path: pytest.fail("it is not ours"))
    before = sorted(acme.data_dir.iterdir())

    assert [row["name"] for row in acme.rows("tenant", "list")] == ["acme"]
    assert [row["name"] for row in acme.rows("device", "list", "acme")] == ["dev1"]

    assert "readonly" in acme("tenant", "create", "beta", code=7).err
    assert sorted(acme.data_dir.iterdir()) == before


def test_init_where_nothing_can_be_written_is_unavailable(call: Callable[..., Result], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    result = call("--data-dir", str(tmp_path / "file" / "hub"), "init")

    assert result.code == 7
    assert result.err.count("\n") == 1


def test_files_of_a_new_directory_are_private(cli: Cli) -> None:
    for name in ("pepper", "accounts.db", "iothub.toml"):
        assert not stat.S_IMODE((cli.data_dir / name).stat().st_mode) & 0o077, name


def test_data_directory_comes_from_the_environment(
    cli: Cli, call: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IOTHUB_DATA_DIR", str(cli.data_dir))

    assert call("tenant", "list", "-o", "json").json == []


def test_pepper_that_others_can_read_is_refused(cli: Cli) -> None:
    (cli.data_dir / "pepper").chmod(0o644)

    assert "chmod 600" in cli("tenant", "list", code=2).err


def test_first_and_second_hub_get_the_same_pepper(
    call: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first `init` makes accounts and pepper where the settings have them; the second one without that file makes nothing."""
    (tmp_path / "accounts-url").write_text(f"sqlite:///{tmp_path / 'shared.db'}\n")
    monkeypatch.setenv("IOTHUB_SQL__URL_FILE", str(tmp_path / "accounts-url"))
    monkeypatch.setenv("IOTHUB_AUTH__PEPPER_FILE", str(tmp_path / "pepper"))
    assert call("--data-dir", str(tmp_path / "one"), "init").code == 0
    pepper = (tmp_path / "pepper").read_bytes()
    assert call("--data-dir", str(tmp_path / "one"), "tenant", "create", "acme").code == 0

    (tmp_path / "pepper").rename(tmp_path / "kept")
    refused = call("--data-dir", str(tmp_path / "two"), "init")
    assert (refused.code, "pepper is missing" in refused.err) == (7, True)
    assert not (tmp_path / "two").exists()

    (tmp_path / "kept").rename(tmp_path / "pepper")
    assert call("--data-dir", str(tmp_path / "two"), "init").code == 0
    assert "acme" in call("--data-dir", str(tmp_path / "two"), "tenant", "list").out
    assert (tmp_path / "pepper").read_bytes() == pepper
    assert not (tmp_path / "two" / "pepper").exists()


def test_configuration_file_that_is_lost_is_no_reload_of_defaults(cli: Cli) -> None:
    """A hub that lost its file must not open what the file had closed; without a file at the start it takes one that comes later."""
    file = cli.data_dir / "iothub.toml"
    file.write_text("config_version = 1\nlisteners.tcp.deny = ['10.0.0.0/8']\n")
    app = App(cli.data_dir, None, Hints(), is_input_allowed=False)
    read = app.load_checked().loaded

    file.rename(file.with_suffix(".kept"))
    with pytest.raises(ConfigError, match=f"{file}: no such configuration file"):
        app.load_checked()

    late = App(cli.data_dir, None, Hints(), is_input_allowed=False)
    assert late.load_checked().loaded.config == Config()
    file.with_suffix(".kept").rename(file)
    assert [each.load_checked().loaded for each in (app, late)] == [read, read]
