"""Every example in a help text does what it says, word by word."""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Callable
from contextlib import closing, nullcontext
from pathlib import Path

import pytest

from iothub.cli import main
from iothub.cli.main import run
from iothub.config.datadir import DataDir
from iothub.jobs.places import Places
from iothub.records import events
from iothub.records.admin_commands import Json, Request, message_rows
from iothub.records.events import Subject
from iothub.records.message import StoredMessage, encode_message
from iothub_tenants.accounts import job_runs, tenants
from iothub_tenants.accounts.database import sqlite_url
from iothub_tenants.accounts.job_runs import Owner
from iothub_tenants.accounts.store import AccountStore
from tests.support.foreign_hashes import EMQX, EMQX_SALT, PBKDF2
from tests.support.hubs.left_behind import left_behind
from tests.support.in_process.answering import AnsweringHub
from tests.support.in_process.command import Result, commands
from tests.support.in_process.query_answers import CLIENT, LAST, QUEUE, SESSION
from tests.support.tokens import ES256, jwk, public_pem

ELSEWHERE = {"serve", "status", "admin serve"}  # they need a process of their own: the integration tests start it
ELSEWHERE |= {
    "hbase create-tables",
    "hbase status",
    "hbase sweep",
}  # they need the real servers: tests/services has them
ELSEWHERE |= {"stream show", "stream create", "stream delete"}  # they need Kafka: tests/services has it
ELSEWHERE |= {"webhook test"}  # it sends a request: tests/integration/webhooks has a receiver
ELSEWHERE |= {"job cancel"}  # ends a process: tests/unit/jobs/test_control.py
ELSEWHERE |= {"job run"}  # starts Spark: tests/integration/jobs runs one job, and a night
NO_TERMINAL = {
    "iothub --data-dir ./hub device set-password acme dev1",  # asks for the password
    "iothub --data-dir ./hub events tail --follow",  # ends with Ctrl-C
    "iothub --data-dir ./hub --config .services/iothub.toml doctor -o json",  # needs the real servers: tests/services has them
    "iothub --data-dir ./hub ban remove acme failures dev1 --from 192.0.2.7",  # asks a running hub: test_bans.py has one
}
ASKING = {
    "alarm",
    "client",
    "session",
    "queue",
    "retain",
    "rejected",
    "explain",
    "trace",
    "config reload",
    "cluster status",
    "cluster nodes",
    "cluster drain",
    "cluster resume",
    "cluster evict",
}  # the running hub
GONE_BEFORE = {  # what an example makes must not be there yet
    "tenant create": ("tenant", "delete", "acme", "--confirm", "acme"),
    "device create": ("device", "delete", "acme", "dev1", "--yes"),
    "device import": ("device", "delete", "acme", "dev1", "--yes"),
    "admin user create": ("admin", "user", "delete", "alice", "--yes"),
    "group create": ("group", "delete", "acme", "sensors", "--yes"),
    "webhook create": ("webhook", "delete", "pager", "--tenant", "acme", "--yes"),
    "token-issuer add": ("token-issuer", "remove", "acme", "fleet", "--yes"),
}


def examples() -> list[tuple[str, str]]:
    found = []
    for path, command in commands(main.command):
        lines = (command.help or "").partition("Example")[2].splitlines()
        found += [(path, line.strip()) for line in lines if "iothub " in line]
    return [(path, line) for path, line in found if path not in ELSEWHERE and line not in NO_TERMINAL]


@pytest.fixture(scope="module")
def lived_in(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working directory in which everything that an example names is there."""
    base = tmp_path_factory.mktemp("examples")
    (base / "fleet.pem").write_text(public_pem(ES256))
    (base / "jwks.json").write_text(json.dumps({"keys": [jwk(ES256, "k1")]}))
    (base / "shared.secret").write_text("s" * 32)
    hub = ("--data-dir", str(base / "hub"))
    for line in (
        "init",
        "tenant create acme",
        "device create acme dev1",
        "group create acme sensors",
        "group join acme sensors dev1",
        "acl allow acme dev1 publish sensors/dev1/#",
        *(f"acl allow acme dev1 publish other/{number}" for number in range(5)),
        "quota set acme connections=1",
        "plan create small connections=1",
        "ban add acme device dev1",
        f"token-issuer add acme fleet --public-key-file {base / 'fleet.pem'}",
        "webhook create pager https://hooks.example.com/iothub --tenant acme",
        "admin key create ci --role viewer",
        "admin user create alice --role viewer --generate",
        f"tenant export acme --file {base / 'acme.json'}",
        f"backup {base / 'backup-monday'}",
    ):
        assert run([*hub, *line.split()]) == 0, line
    (base / "devices.csv").write_text("name,password\ndev1,secret\n")
    (base / "fleet.csv").write_text("name\nfleet1\n")
    (base / "mosquitto.passwd").write_text(f"old1:{PBKDF2}\n")
    (base / "emqx.csv").write_text(f"user_id,password_hash,salt\nold2,{EMQX},{EMQX_SALT}\n")
    (base / "mosquitto.acl").write_text("pattern readwrite devices/%u/#\n")
    (base / "rules.csv").write_text("subject,effect,action,filter\n*,allow,both,news/#\n")
    (base / "dev1.secret").write_text("secret")
    (base / "prod.key").write_text("key")
    (base / "bob.secret").write_text("correct horse battery")
    (base / "limits.txt").write_text("connections=5\ndev1 packet_bytes=1KiB\n")
    (base / "tenants.yaml").write_text("tenants:\n  - tenant: {name: acme}\n    devices: [dev1, dev2]\n")
    (base / "new.toml").write_text("config_version = 1\n")
    (base / "mariadb.url").write_text("sqlite:///copied.db\n")
    with left_behind(DataDir(base / "hub")) as written:
        subject = Subject(1, "meter-7", 7 << 24, 0)
        written.log.append(
            [events.session_created(subject, device="dev1", queue_id=7, protocol_version=5, session_expiry_s=60)]
        )
    remember_jobs(DataDir(base / "hub"))
    return base


def remember_jobs(data_dir: DataDir) -> None:
    """Runs up to number 12, whose log is there."""
    with closing(AccountStore(sqlite_url(data_dir.accounts))) as store:
        for _ in range(12):
            begun = job_runs.begin(store, "verify", {}, Owner("here", 1, "hub"))
            job_runs.end(store, begun.id, job_runs.Result.DONE, figures={})
    log_file = Places(data_dir.path).log_file(12)
    log_file.parent.mkdir()
    log_file.write_text("done\n")


def answers_to(request: Request) -> tuple[list[Json], Json]:
    """What a hub tells of session `meter-7` and its queue, and of two retained messages."""
    noun, _, verb = request.verb.partition(".")
    if noun == "config":
        return [], {"warnings": [], "certificates": []}
    if noun == "retain":
        record = encode_message(StoredMessage(b"image", b"21.5", 1, True, b"", 0, b"", "c9"))
        topics: list[Json] = [{"name": "room/temperature", "bytes": 4, "version": 1, "expires_at_ms": 0}]
        rows = {"list": topics, "show": list(message_rows({}, record))}.get(verb, [])
        return rows, {"next": None, "messages": 2, "version": 1}
    if noun == "trace":
        facts = {"kind": "client", "value": "meter-7", "for_s": 600, "max_bytes": 1, "payload_bytes_most": 0}
        kept = {
            "id": "t-0123456789abcdef",
            "node": 0,
            **facts,
            "started_at_ms": 0,
            "until_ms": 0,
            "bytes": 1,
            "ended": "time",
        }
        return [kept] if verb == "list" else [], {"hubs": 1, "stopped": 1, "active": 0}
    if noun == "explain":
        return [{"node": 0, "step": "tenant", "outcome": "pass", "reason": "the tenant exists", "rule": ""}], {}
    if noun in {"alarm", "rejected"}:
        return [], {}
    if noun == "cluster":
        hub: Json = {"node": 2, "name": "two", "clients": 0}
        facts: Json = {"closed": 3, "was_draining": True, "was_gone": False, "has_left": False}
        return [{**hub, "state": "down"}] if verb == "status" else [], {**hub, **facts}
    if noun == "client":
        return ([CLIENT], LAST) if verb in ("list", "top") else ([], CLIENT)
    found = SESSION if noun == "session" else {"client_id": "meter-7", **QUEUE}
    return ([found], LAST) if verb == "list" else ([], found)


def let_go(base: Path) -> None:
    """Finish what `tenant delete` began, as the next start of a hub does."""
    with closing(AccountStore(sqlite_url(base / "hub" / "accounts.db"))) as store:
        for deletion in tenants.pending_deletions(store):
            tenants.finish_deletion(store, deletion.tenant_id)


@pytest.mark.parametrize(("path", "line"), examples(), ids=lambda value: value[-60:])
def test_example_works(
    lived_in: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    call: Callable[..., Result],
    path: str,
    line: str,
) -> None:
    base = tmp_path / "here"
    shutil.copytree(lived_in, base)
    monkeypatch.chdir(base)
    if path == "token-issuer update" and " login " in line:
        assert call("--data-dir", "./hub", "token-issuer", "add", "acme", "login", "--jwks-file", "jwks.json").code == 0
    if path == "cluster issue":
        assert call("--data-dir", "./hub", "cluster", "init-ca").code == 0
    if path in ("context use", "context remove"):
        for name in ("prod", "test"):
            assert call("context", "add", name, "https://iothub.example.com", "--key-env", "KEY").code == 0
    if path in GONE_BEFORE:
        assert call("--data-dir", "./hub", *GONE_BEFORE[path]).code == 0
        let_go(base)

    line = line.removeprefix('eval "$(').removesuffix(')"')  # what a shell would run is what the command prints
    stdin, _, command = line.rpartition("| ")
    command, _, _redirected = command.partition(" > ")
    command = command.replace("/var/lib/iothub", str(tmp_path / "fresh" if path == "init" else base / "hub"))
    is_asking = path.split()[0] in ASKING or path in ASKING
    with AnsweringHub(base / "hub", answers_to) if is_asking else nullcontext():
        result = call(*shlex.split(command)[1:], stdin=shlex.split(stdin)[-1].encode() if stdin else b"")

    assert result.code == 0, result
    assert "Traceback" not in result.err


def test_examples_are_found() -> None:
    """A test over nothing is green."""
    assert len(examples()) > 70
