"""`iothub bundle`: what is in the archive, what is not and why, and no secret in any of it."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pytest

from iothub.cli import bundle
from iothub.cli.bundle import PARTS, Part
from iothub.cli.redaction import MARK, Redaction
from iothub.config.datadir import DataDir
from iothub.records.admin_commands import Json, Request, Verb
from tests.support.in_process.answering import AnsweringHub
from tests.support.in_process.command import Cli, Result

URL_PASSWORD = "Sql/Passw0rd%21"
REDIS_PASSWORD = "redis-passw0rd"
OIDC_SECRET = "oidc-client-secret"
KAFKA_PASSWORD = "kafka-passw0rd"
PERSON = "a person's passw0rd"


def opened(archive: Path) -> dict[str, str]:
    """Return the files of an archive by name."""
    with tarfile.open(archive) as tar:
        entries = tar.getmembers()
        assert {entry.mode for entry in entries} == {0o600}
        read = {entry.name.partition("/")[2]: tar.extractfile(entry) for entry in entries}
        return {name: file.read().decode() for name, file in read.items() if file is not None}


def states(record: Any) -> dict[str, str]:
    return {part["name"]: part["state"] for part in record["parts"]}


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    return tmp_path / "bundle.tar.gz"


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is found as the log, by lines; that of these hubs would be that of the tests."""
    lines: list[str] = []
    monkeypatch.setitem(PARTS, "log", Part("log.txt", lambda _app: "\n".join(lines)))
    return lines


def test_stopped_hub_gives_what_is_there_and_says_what_is_missing(acme: Cli, archive: Path) -> None:
    record = acme.rows("bundle", "--file", str(archive), "--without", "doctor")

    found = opened(archive)
    missing = {"status", "alarms", "metrics", "cluster", "log"}
    assert states(record) == {
        name: "missing" if name in missing else "left out" if name == "doctor" else "taken" for name in PARTS
    }
    assert all("no hub runs" in part["reason"] for part in record["parts"] if part["name"] in missing)
    assert archive.stat().st_mode & 0o777 == 0o600
    assert json.loads(found["manifest.json"])["parts"] == record["parts"]
    assert {row["name"] for row in json.loads(found["files.json"])} >= {"accounts.db", "pepper", "iothub.toml"}
    assert "mqtt.max_inflight" in {row["name"] for row in json.loads(found["settings.json"])}
    assert json.loads(found["version.json"])["drivers"]["queues"] == "sqlite"


def test_running_hub_is_asked(acme: Cli, archive: Path) -> None:
    def answer(request: Request) -> tuple[list[Json], Json]:
        if request.verb == Verb.CLUSTER_STATUS:
            return [{"node": 0, "name": "hub-1"}], {}
        alarm = {"name": "disk_low", "severity": "warning", "since": 0}
        rows = [alarm] if request.verb == Verb.ALARM_LIST else []
        return rows, {"ready": True, "reasons": [], "alarms": [alarm]}

    with AnsweringHub(acme.data_dir, answer):
        result = acme("bundle", "--file", str(archive))

    found = opened(archive)
    assert json.loads(found["alarms.json"])[0]["name"] == "disk_low"
    assert json.loads(found["cluster.json"])[0]["name"] == "hub-1"
    assert json.loads(found["status.json"])["state"] == "running"
    assert "alarm disk_low" in {row["name"] for row in json.loads(found["doctor.json"])}
    assert "no hub runs here with an HTTP port" in result.out
    assert f"wrote {archive}" in result.err


def test_wrong_configuration_leaves_the_rest(acme: Cli, archive: Path) -> None:
    (acme.data_dir / "iothub.toml").write_text('config_version = 1\n[mqtt]\nmax_inflight = "x"\nqos = 3\n')

    record = acme.rows("bundle", "--file", str(archive))

    reasons = {part["name"]: part["reason"] for part in record["parts"]}
    assert "mqtt.max_inflight: expected a whole number" in reasons["settings"]
    assert "mqtt.qos" in reasons["settings"]
    assert states(record)["files"] == "taken"


def test_existing_file_stays(acme: Cli, archive: Path) -> None:
    archive.write_text("mine")

    assert "exists already" in acme("bundle", "--file", str(archive), code=4).err
    assert archive.read_text() == "mine"
    assert (
        "cannot be written: No such file"
        in acme("bundle", "--file", "/none/x", *(word for name in PARTS for word in ("--without", name)), code=7).err
    )


def test_directory_without_init_is_said_first(call: Callable[..., Result], tmp_path: Path) -> None:
    assert "init" in call("--data-dir", str(tmp_path / "none"), "bundle").err


def test_no_secret_of_the_product_is_in_the_archive(acme: Cli, archive: Path, tmp_path: Path, log: list[str]) -> None:
    """Of every kind; those that are in files also in the mouth of a hub and of a log that say too much."""
    hashed, filed = _accounts_secrets(acme), _file_secrets(acme, tmp_path)
    log += ["cannot log in", *filed]
    alarms = [{"name": "store_failed", "severity": "critical", "detail": text, "advice": ""} for text in filed]

    with AnsweringHub(acme.data_dir, lambda _request: ([], {"ready": True, "reasons": [], "alarms": alarms})):
        acme("bundle", "--file", str(archive))
        whole = "\n".join(opened(archive).values())
        _move_accounts(acme, tmp_path / "url")  # to a server that does not answer: its URL is what errors are about
        acme("bundle", "--file", str(archive), "--force")
    whole += "\n".join(opened(archive).values())

    assert all(word in whole for word in (MARK, "store_failed", "cannot log in", "127.0.0.1"))
    assert [secret for secret in (*hashed, *filed, URL_PASSWORD, "Sql/Passw0rd!") if secret in whole] == []


def _move_accounts(acme: Cli, url_file: Path) -> None:
    url_file.write_text(f"mysql+pymysql://hub:{URL_PASSWORD}@127.0.0.1:1/iothub")
    with (acme.data_dir / "iothub.toml").open("a") as file:
        file.write(f'[sql]\nurl_file = "{url_file}"\n')


def _accounts_secrets(acme: Cli) -> list[str]:
    """Make what the accounts keep as hashes."""
    acme("admin", "user", "create", "bob", "--role", "viewer", "--password-stdin", stdin=PERSON.encode())
    user = acme("admin", "user", "create", "alice", "--role", "viewer", "--generate", "-o", "json").json
    key = acme("admin", "key", "create", "k1", "--role", "viewer", "-o", "json").json
    device = acme("device", "create", "acme", "dev2", "-o", "json").json
    return [PERSON, user["password"], key["key"], device["secret"]]


def _file_secrets(acme: Cli, tmp_path: Path) -> list[str]:
    """Make every file that holds a secret, and settings that name them."""
    acme("cluster", "init-ca")
    acme("cluster", "issue", "0")
    acme("cert", "self-signed", str(tmp_path / "tls"))
    for name, text in (("redis", REDIS_PASSWORD), ("oidc", OIDC_SECRET), ("kafka", KAFKA_PASSWORD)):
        (tmp_path / name).write_text(f"{text}\n")
    (acme.data_dir / "iothub.toml").write_text(
        f"""config_version = 1
[listeners.tcp]
port = 0
[listeners.tls]
cert_file = "{tmp_path}/tls/cert.pem"
key_file = "{tmp_path}/tls/key.pem"
[redis]
password_file = "{tmp_path}/redis"
[admin.oidc]
client_secret_file = "{tmp_path}/oidc"
[kafka]
sasl_password_file = "{tmp_path}/kafka"
"""
    )
    pepper = DataDir(acme.data_dir).pepper()
    keys = [tmp_path / "tls" / "key.pem", *(acme.data_dir / "cluster").glob("*key.pem")]
    assert len(keys) == 3
    lines = [line for key in keys for line in key.read_text().splitlines() if not line.startswith("-----")]
    return [REDIS_PASSWORD, OIDC_SECRET, KAFKA_PASSWORD, pepper.hex(), base64.b64encode(pepper).decode(), *lines]


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("redis://:pw@r:6379/0 refuses", f"redis://:{MARK}@r:6379/0 refuses"),
        ("mysql+pymysql://u:p@ss/w@h/x: down", f"mysql+pymysql://u:{MARK}@h/x: down"),
        ("Authorization: Bearer k.abc, 401", f"Authorization: Bearer {MARK} 401"),
        ("-----BEGIN EC PRIVATE KEY-----\nabc\n-----END EC PRIVATE KEY-----\nx", f"{MARK}\nx"),
        ("-----BEGIN PRIVATE KEY-----\nabc", MARK),
        ("http://127.0.0.1:8080/status", "http://127.0.0.1:8080/status"),
    ],
)
def test_what_looks_like_a_secret_is_replaced(text: str, left: str) -> None:
    assert Redaction([]).value({text: [text, 1, None]}) == {left: [left, 1, None]}


LOG = """user admin, password q9wT1hJ3_x
2026-01-02T03:04:05.678Z info    hub ready
{"event": "hub ready", "level": "info", "time": "2026-01-02T03:04:05.678Z"}
{"device": "console", "secret": "aB3dE5fG7hJ9"}"""


@contextmanager
def other_process(data_dir: Path, stderr: IO[bytes] | int) -> Iterator[None]:
    """A process that holds the data directory until the end of the block."""
    text = "import sys, pathlib; from iothub.config.datadir import DataDir; held = DataDir(pathlib.Path(sys.argv[1])).lock('iothub serve'); "
    text += "print(sys.argv[2], file=sys.stderr, flush=True); print('ready', flush=True); sys.stdin.read()"
    words = [sys.executable, "-c", text, str(data_dir), LOG]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield
        process.communicate()


def test_log_is_taken_if_it_goes_to_a_file(cli: Cli, archive: Path, tmp_path: Path) -> None:
    words = ("bundle", "--file", str(archive), "--force", "--without", "doctor")
    with (tmp_path / "log").open("wb") as file, other_process(cli.data_dir, file):
        assert states(cli.rows(*words))["log"] == "taken"
    left, *own, count = opened(archive)["log.txt"].splitlines()
    assert [left, *own] == LOG.splitlines()[1:3]
    assert count == "(lines that are not the hub's, left out: 2)"

    with other_process(cli.data_dir, subprocess.DEVNULL):
        reasons = {part["name"]: part["reason"] for part in cli.rows(*words)["parts"]}
    assert "the hub's log does not go to a file" in reasons["log"]


def test_end_of_a_long_log_begins_with_a_whole_line(tmp_path: Path) -> None:
    log = tmp_path / "long"
    log.write_bytes(b"".join(b"line %06d\n" % number for number in range(200_000)))

    end = bundle._end_of(log).splitlines()

    assert len(end[0]) == len("line 000000")
    assert end[-1] == "line 199999"
    assert bundle.LOG_BYTES - 12 < 12 * len(end) <= bundle.LOG_BYTES
