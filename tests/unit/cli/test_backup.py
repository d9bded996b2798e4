"""`iothub backup` and `iothub restore` as a person or a script meets them: what is said, and exit codes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from iothub.backup import files, making, restoring
from iothub.base.errors import UnavailableError
from iothub.config.datadir import DataDir
from iothub.records.admin_commands import Json, Request, Verb
from tests.support.in_process.answering import AnsweringHub
from tests.support.in_process.command import Cli, Result


def answer(request: Request) -> tuple[list[Json], Json]:
    """What a hub says in whose files nothing changes."""
    return [], {"hold": "7"} if request.verb == Verb.BACKUP_HOLD else {"is_whole": request.argument == {"hold": "7"}}


@pytest.fixture
def folder(tmp_path: Path) -> str:
    return str(tmp_path / "backup")


@pytest.fixture
def empty(tmp_path: Path, call: Callable[..., Result]) -> Cli:
    """A data directory that does not exist."""
    return Cli(tmp_path / "deep" / "empty", call)


def test_backup_and_restore_of_a_stopped_hub(acme: Cli, empty: Cli, folder: str) -> None:
    said = acme("backup", folder).err
    assert said.startswith(f"{folder}: 3 files, ")

    restored = empty("restore", folder).err

    assert "the hub will continue from that moment" in restored
    assert f"then: `iothub --data-dir {empty.data_dir} serve`" in restored
    assert empty.rows("tenant", "list") == acme.rows("tenant", "list")
    assert DataDir(empty.data_dir).pepper() == DataDir(acme.data_dir).pepper()


def test_backup_beside_a_hub_asks_it_to_hold_still(acme: Cli, folder: str) -> None:
    with AnsweringHub(acme.data_dir, answer) as hub:
        record = acme.rows("backup", folder)

    assert [request.verb for request in hub.requests] == [Verb.BACKUP_HOLD, Verb.BACKUP_RELEASE]
    assert (record["name"], record["is_hub_running"], record["files"]) == ("backup", True, 3)
    assert (record["folder"], record["elsewhere"]) == (folder, [])
    assert record["bytes"] > 100_000


def test_refusals_of_a_hub_are_the_commands(acme: Cli, folder: str) -> None:
    """Nothing is left of the attempt."""

    def refuse(_request: Request) -> tuple[list[Json], Json]:
        raise UnavailableError("a commit has taken longer than 5 s: the disk is slow or failing")

    with AnsweringHub(acme.data_dir, refuse):
        assert "the disk is slow" in acme("backup", folder, code=7).err
    with AnsweringHub(acme.data_dir):
        assert "does not answer" in acme("backup", folder, code=7).err
    with AnsweringHub(acme.data_dir) as hub:
        hub.data_dir.write_hub({"starting": "waiting for HBase: it is down"})
        assert "the hub is starting" in acme("backup", folder, code=7).err

    assert not Path(folder).exists()


def test_hub_that_could_not_hold_still_long_enough_is_asked_again(acme: Cli, folder: str) -> None:
    def too_late(request: Request) -> tuple[list[Json], Json]:
        return [], {"hold": "7", "is_whole": False}

    with AnsweringHub(acme.data_dir, too_late) as hub:
        assert "overloaded; try again" in acme("backup", folder, code=7).err

    assert len(hub.requests) == 2 * making.HOLDS
    assert not Path(folder).exists()


def test_exit_codes_of_backup(acme: Cli, empty: Cli, folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "init" in empty("backup", folder, code=3).err
    assert not empty.data_dir.exists()
    acme("backup", folder)
    assert "has a backup already" in acme("backup", folder, code=4).err
    assert "is in the data directory" in acme("backup", f"{acme.data_dir}/backup", code=4).err
    assert "the name is empty" in acme("backup", "", code=2).err
    monkeypatch.setattr(making, "disk_free_bytes", lambda _path: 5)
    assert "5 bytes are free" in acme("backup", f"{folder}-2", code=7).err


def test_interrupted_backup_leaves_no_folder(acme: Cli, folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_arguments: object) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr(files, "hash_of", interrupt)

    assert "interrupted: no backup was made" in acme("backup", folder, code=130).err
    assert not Path(folder).exists()
    assert DataDir(acme.data_dir).holder() is None


def test_what_is_elsewhere_is_named_by_both(acme: Cli, empty: Cli, folder: str, tmp_path: Path) -> None:
    """`iothub.backup.elsewhere`: servers, and files outside of the data directory; those inside are copied."""
    inside = acme.data_dir / "own.pem"
    inside.touch()
    settings = f"""config_version = 1
        [auth]
        pepper_file = "{acme.data_dir}/pepper"
        [listeners.tls]
        cert_file = "{inside}"
        key_file = "{tmp_path}/key.pem"
        [listeners.tls.partners]
        port = 8884
        client_ca_file = "{tmp_path}/partners.pem"
        [events]
        driver = "kafka"
        [queues]
        driver = "redis"
        [state]
        driver = "hbase"
        [retained]
        driver = "hbase"
        [kafka]
        brokers = ["k:9092"]
        topic_prefix = "house"
        [redis]
        addresses = ["r:6379"]
        [hbase]
        thrift = ["h:9090"]
        """
    (acme.data_dir / "iothub.toml").write_text(settings)

    record = acme.rows("backup", folder)

    assert record["elsewhere"] == [
        "the session-event log, in Kafka's topics house.*: mirror these topics",
        "tables in HBase: take a snapshot of each of iothub:checkpoints, iothub:retained, iothub:state",
        "the queues iothub:queue:* in Redis: copy its append-only files",
        f"listeners.tls.key_file: {tmp_path}/key.pem",
        f"listeners.tls.partners.key_file: {tmp_path}/key.pem",
        f"listeners.tls.partners.client_ca_file: {tmp_path}/partners.pem",
    ]
    said = empty("restore", folder).err
    for line in record["elsewhere"]:
        assert f"warning: not in the backup, and used as it is now: {line}\n" in said


def test_configuration_elsewhere_is_named(acme: Cli, folder: str, tmp_path: Path) -> None:
    """With accounts on a server that is where the accounts are."""
    (tmp_path / "url").write_text("mysql://nobody@nowhere/iothub")
    (tmp_path / "hub.toml").write_text(f'config_version = 1\n[sql]\nurl_file = "{tmp_path}/url"\n')

    elsewhere = acme.rows("--config", f"{tmp_path}/hub.toml", "backup", folder)["elsewhere"]

    assert f"the accounts, on the SQL server that {tmp_path}/url names" in elsewhere[0]
    assert f"sql.url_file: {tmp_path}/url" in elsewhere
    assert f"the configuration (--config): {tmp_path}/hub.toml" in elsewhere


def test_exit_codes_of_restore(acme: Cli, empty: Cli, folder: str, tmp_path: Path) -> None:
    acme("backup", folder)

    assert "is no backup, or one that was not finished" in empty("restore", str(tmp_path), code=3).err
    assert not empty.data_dir.exists()
    assert (
        "is not empty (accounts.db): restore into another --data-dir, or use --replace"
        in acme("restore", folder, code=4).err
    )
    with AnsweringHub(acme.data_dir):
        assert (
            "(iothub serve, listening on 127.0.0.1:1883); stop it first"
            in acme("restore", folder, "--replace", code=4).err
        )
    (Path(folder) / "pepper").write_bytes(bytes(32))
    assert "pepper is damaged" in acme("restore", folder, "--replace", code=1).err
    assert [path.name for path in acme.data_dir.glob("re*")] == []
    assert acme.rows("tenant", "list")[0]["name"] == "acme"


@pytest.mark.parametrize("is_there", [True, False])
def test_refused_restore_leaves_nothing_behind(
    acme: Cli, empty: Cli, folder: str, monkeypatch: pytest.MonkeyPatch, is_there: bool
) -> None:
    """Of a damaged backup, without room, and interrupted while files are checked: no directory, no lock in one that was there."""
    acme("backup", folder)
    if is_there:
        empty.data_dir.mkdir(parents=True)

    def interrupt(*_arguments: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(restoring, "disk_free_bytes", lambda _path: 5)
        assert "5 bytes are free" in empty("restore", folder, code=7).err
        assert "5 bytes are free" in empty("restore", folder, "--dry-run", code=7).err
    with monkeypatch.context() as patch:
        patch.setattr(files, "hash_of", interrupt)
        assert "interrupted; nothing was changed" in empty("restore", folder, code=130).err
    (Path(folder) / "pepper").write_bytes(bytes(32))
    assert "pepper is damaged" in empty("restore", folder, code=1).err
    (Path(folder) / "backup.json").write_text("{")
    assert (
        "backup.json is damaged: it is no JSON at line 1, column 2; use another" in empty("restore", folder, code=1).err
    )

    assert list(empty.data_dir.iterdir()) == [] if is_there else not empty.data_dir.exists()


def test_replaced_files_can_be_taken_back(acme: Cli, folder: str) -> None:
    acme("backup", folder)
    acme("tenant", "create", "later")

    record = acme.rows("restore", folder, "--replace")

    assert [row["name"] for row in acme.rows("tenant", "list")] == ["acme"]
    assert Path(record["replaced"]).parent == acme.data_dir
    assert sorted(path.name for path in Path(record["replaced"]).glob("*.*")) == ["accounts.db", "iothub.toml"]
    assert (record["name"], record["files"]) == ("restore", 3)


def test_dry_run_checks_the_backup_and_changes_nothing(acme: Cli, empty: Cli, folder: str) -> None:
    acme("backup", folder)

    record = empty.rows("restore", folder, "--dry-run")
    assert (record["is_restored"], record["files"]) == (False, 3)
    assert not empty.data_dir.exists()
    assert "is not empty" in acme("restore", folder, "--dry-run", code=4).err
    assert "nothing was changed" in acme("restore", folder, "--dry-run", "--replace").err
    with AnsweringHub(acme.data_dir):
        assert "stop it first" in acme("restore", folder, "--dry-run", "--replace", code=4).err
    (Path(folder) / "pepper").unlink()
    assert "pepper is missing" in empty("restore", folder, "--dry-run", code=1).err
    assert not empty.data_dir.exists()


@pytest.mark.parametrize(
    ("where", "what", "said"),
    [
        (files, "copy", "interrupted; nothing was changed"),
        (Path, "rename", "interrupted while files were moved: run the same command again"),
    ],
)
def test_interrupted_restore_says_what_to_do(
    acme: Cli, empty: Cli, folder: str, monkeypatch: pytest.MonkeyPatch, where: object, what: str, said: str
) -> None:
    def interrupt(*_arguments: object) -> None:
        raise KeyboardInterrupt

    acme("backup", folder)
    with monkeypatch.context() as patch:
        patch.setattr(where, what, interrupt)
        assert said in empty("restore", folder, code=130).err

    empty("restore", folder)
    assert empty.rows("tenant", "list")[0]["name"] == "acme"


def test_half_restored_directory_is_refused_by_every_command(acme: Cli) -> None:
    DataDir(acme.data_dir).unfinished_restore.touch()

    for words in (("tenant", "list"), ("serve",), ("status",), ("backup", f"{acme.data_dir}-copy"), ("init",)):
        assert "run `iothub --data-dir" in acme(*words, code=7).err, words


def test_manifest_is_for_people_too(acme: Cli, folder: str) -> None:
    acme("backup", folder)

    found = json.loads((Path(folder) / "backup.json").read_text())

    assert found["version"] == 1
    assert [entry["name"] for entry in found["files"]] == ["accounts.db", "iothub.toml", "pepper"]
