"""`--context`: the same command lines on two equal data directories, here and through the REST API, print the same and end with the same code.

iothub.cli.remote, iothub.cli.remote_hub, iothub.cli.remote_commands, iothub.cli.remote_api.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from iothub.base.errors import ConflictError, NotFoundError
from iothub.cli import contexts, remote_api
from iothub.cli.admin import ServedHub
from iothub.cli.app import WITHOUT_CONTEXT
from iothub.cli.contexts import Context
from iothub.cli.main import NOUNS, command
from iothub.cli.remote_api import Reply
from iothub.cli.remote_commands import COMMANDS, HERE, works_remotely
from iothub.config.datadir import DataDir
from iothub.config.sections import Config
from iothub.records.admin_commands import Json, Request, Verb, message_rows
from iothub.rest.caller import BoundedHub
from iothub.rest.edge import Edge
from iothub.testing.clock import ManualClock
from iothub_tenants.accounts import acl_rules, api_keys, job_runs
from iothub_tenants.accounts.database import sqlite_url
from iothub_tenants.accounts.job_runs import Owner
from iothub_tenants.accounts.store import AccountStore
from tests.support.in_process.answering import AnsweringHub
from tests.support.in_process.command import Cli, Result, commands
from tests.support.in_process.query_answers import CLIENT, LAST, QUEUE, SESSION, body
from tests.support.in_process.rest_api import STEP, MachineDouble, paths, request
from tests.support.tokens import ES256, jwk, public_pem

SUBSCRIPTION: Json = {"group": "g", "filter": "a/#", "qos": 1, "no_local": False}
TRACE: Json = {
    "id": "t-1",
    "kind": "client",
    "value": "c1",
    "ended": "stopped",
    "started_at_ms": 1_800_000_000_000,
    "until_ms": 1_800_086_460_000,
    "for_s": 60,
    "max_bytes": 65_536,
    "payload_bytes_most": 0,
    "bytes": 30,
    "node": 0,
}
UNANSWERED: Json = {"hub": "two (2)", "reason": "no answer within 2 s"}
_CHANGING = re.compile(
    r"iothub_[0-9a-f]{12}_[\w-]{32}|whsec_[\w+/=]+|t-[0-9a-f]{16}|(?<![\w-])(?:[\w-]{32}|[\w-]{20})(?![\w-])|\b[0-9a-f]{12}\b|\d{4}-\d\d-\d\dT[\d:]+Z"
)


def answer(asked: Request) -> tuple[Sequence[Json], Json]:
    """What a hub says of its clients."""
    answers: dict[str, tuple[Sequence[Json], Json]] = {
        Verb.ACCOUNTS_APPLY: ([], {}),
        Verb.CLIENT_LIST: ([CLIENT], {**LAST, "unanswered": [UNANSWERED]}),
        Verb.CLIENT_TOP: ([CLIENT], {"unanswered": [UNANSWERED]}),
        Verb.CLIENT_SHOW: ([SUBSCRIPTION], CLIENT),
        Verb.CLIENT_KICK: ([], CLIENT),
        Verb.SESSION_LIST: ([SESSION], {"next": "c1" if asked.argument.get("limit") == 1 else None}),
        Verb.SESSION_SHOW: ([SUBSCRIPTION], SESSION),
        Verb.SESSION_DISCARD: ([], {}),
        Verb.QUEUE_LIST: ([{"client_id": "c1", **QUEUE}], LAST),
        Verb.QUEUE_SHOW: (list(message_rows({"position": 4, "qos": 1, "expires_at_ms": 0}, body(b"21.5"))), QUEUE),
        Verb.QUEUE_PURGE: ([], {"messages": 2}),
        Verb.RETAIN_LIST: ([{"name": "a/b", "bytes": 1, "version": 1, "expires_at_ms": 0}], LAST),
        Verb.RETAIN_SHOW: (list(message_rows({}, body(b"on"))), {"version": 2}),
        Verb.RETAIN_COUNT: ([], {"messages": 2}),
        Verb.RETAIN_DELETE: ([], {"messages": 2}),
        Verb.REJECTED_LIST: ([], {}),
        Verb.BAN_LIST: (
            [{"device": "dev1", "address": "192.0.2.7", "until_ms": 1_800_000_000_000}],
            {"left_out": 0, "reason": "10 failed logins within 60 s"},
        ),
        Verb.BAN_LIFT: ([], {"bans": 1}),
        Verb.EXPLAIN_CONNECT: ([{**STEP, "outcome": "fail"}], {}),
        Verb.EXPLAIN_PUBLISH: ([STEP, {**STEP, "node": 1}], {}),
        Verb.EXPLAIN_SUBSCRIBE: ([STEP], {"unanswered": [UNANSWERED]}),
        Verb.STREAM_SHOW: ([], {"state": "up", "messages": 1}),
        Verb.STATUS: ([], {"ready": True, "alarms": [], "connections": 3}),
        Verb.TRACE_START: ([], {"hubs": 1}),
        Verb.TRACE_LIST: ([TRACE], {}),
        Verb.TRACE_READ: (
            []
            if asked.argument.get("offsets")
            else [{"node": 0, "offset": 9, "line": '{"at_ms": 5, "what": "PUBLISH"}'}],
            {"active": 0},
        ),
        Verb.TRACE_STOP: ([], {"stopped": 1}),
        Verb.TRACE_DELETE: ([], {"deleted": 1}),
        Verb.CONFIG_RELOAD: (
            [{"name": "log.level", "value": '"info"', "reload": "now"}],
            {"warnings": ["w"], "certificates": ["tls"]},
        ),
        Verb.ALARM_LIST: (
            [{"node": 0, "name": "disk_low", "severity": "critical", "since": 1.8e9, "advice": "do"}],
            {},
        ),
        Verb.CLUSTER_STATUS: ([{"node": 1, "name": "two", "state": "up", "clients": 3}], {}),
        Verb.CLUSTER_DRAIN: ([], {"node": 1, "name": "two", "clients": 3, "closed": 0}),
        Verb.CLUSTER_RESUME: ([], {"node": 1, "name": "two", "was_draining": True}),
        Verb.CLUSTER_EVICT: ([], {"node": 1, "name": "two", "was_gone": False, "has_left": False}),
    }
    if "nobody" in (asked.tenant, asked.argument.get("client_id")):
        raise NotFoundError("there is none: `iothub client list acme` shows them")
    return answers[asked.verb]


class Both:
    """Two equal data directories; the second one is behind an API, whose context is `there`."""

    def __init__(self, here: Cli, there: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.here, self.there = here, there
        self.store = AccountStore(sqlite_url(there / "accounts.db"), pepper=DataDir(there).pepper(None))
        hub = BoundedHub(ServedHub(DataDir(there)))
        self._app = Edge(paths(), store=self.store, hub=hub, machine=MachineDouble(), settings=Config())
        key = api_keys.create(self.store, "cli", "platform-admin").text
        api_keys.create(
            AccountStore(sqlite_url(here.data_dir / "accounts.db"), pepper=b"p" * 32), "cli", "platform-admin"
        )
        monkeypatch.setattr(remote_api, "send", self._send)
        contexts.save(contexts.Contexts({"there": Context("there", "http://127.0.0.1:1", key=key)}))

    def _send(self, context: Context, method: str, target: str, content: bytes | None, key: str) -> Reply:
        headers = {"authorization": f"Bearer {context.read_key()}", **({"idempotency-key": key} if key else {})}
        if content is not None:
            headers["content-type"] = remote_api.media_type(target)
        found = asyncio.run(request(self._app, method, target, headers, content or b""))
        return Reply(found.status, found.headers.get("link", ""), found.body)

    def remote(self, *words: str, stdin: bytes = b"") -> Result:
        return self.here.call("--context", "there", *words, stdin=stdin)

    def same(self, line: str, stdin: bytes = b"") -> Result:
        """Run it here and there: the same output, the same messages and hints, the same exit code."""
        words = line.split()
        here = self.here.call("--data-dir", str(self.here.data_dir), *words, stdin=stdin)
        there = self.remote(*words, stdin=stdin)
        options = f"--data-dir {self.here.data_dir}"
        expected = (here.code, _steady(here.out), _steady(here.err).replace(options, "--context there"))
        assert (there.code, _steady(there.out), _steady(there.err)) == expected, (line, there.err)
        return there


def _steady(text: str) -> str:
    """Without what is another one each time, secrets and times, and without the line for the listener of this machine."""
    return re.sub(r"^try it: .*\n", "", _CHANGING.sub("*", text), flags=re.MULTILINE)


@pytest.fixture
def both(acme: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Both]:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    shutil.copytree(acme.data_dir, tmp_path / "there")
    made = Both(acme, tmp_path / "there", monkeypatch)
    with closing(made.store):
        yield made


@contextmanager
def hubs(both: Both) -> Iterator[None]:
    with AnsweringHub(both.here.data_dir, answer), AnsweringHub(both.there, answer):
        yield


def test_accounts_are_changed_there_as_here(both: Both) -> None:
    for line in """
        tenant create other --display-name Other -o json
        tenant create other
        tenant show other -o json
        tenant show nobody
        tenant update other --plan unlimited --deny-network 192.0.2.0/24 -o json
        tenant update other --plan nothing
        tenant suspend other
        tenant resume other -o json
        tenant protect other
        tenant delete other --confirm other
        tenant unprotect other
        tenant list -o json
        tenant list --limit 1
        device create acme dev2 --jwt -o json
        device create acme dev1
        device create nobody dev1
        device show acme dev1 -o json
        device show acme nothing
        device disable acme dev1
        device enable acme dev1 -o json
        device set-certificate acme dev1 CN=dev1,O=Acme -o json
        device set-certificate acme dev1 CN=dev1,O
        device set-certificate acme nothing dev1
        device set-jwt acme dev1 -o json
        device set-jwt acme nothing
        group create acme sensors
        group join acme sensors dev1 -o json
        group join acme sensors nothing
        group list acme -o json
        group show acme sensors
        device list acme -o json
        device list nobody
        device list acme --limit 1
        device list acme --limit 1 --after dev1 -o json
        acl allow acme @sensors both a/# -o json
        acl deny acme dev1 publish a/b
        acl deny acme nothing publish a/b
        acl list acme -o json
        acl list acme dev1
        acl list acme --limit 1
        acl test acme dev1 publish a/b -o json
        acl test acme dev1 publish a/c
        acl remove acme 2
        acl remove acme 99
        acl remove acme @sensors both a/#
        acl remove acme @sensors both a/#
        ban add acme address 192.0.2.7 --reason loud -o json
        ban remove acme address 192.0.2.7
        ban remove acme address 192.0.2.7
        quota set acme connections=5 publish_messages=50/1s,1000/1d queued_bytes=1GiB -o json
        quota set acme device_publish_messages=5/1s --device dev1 -o json
        quota set acme nobodys=5
        quota list acme -o json
        quota list acme --device dev1
        quota list acme --limit 1
        quota show acme -o json
        quota show acme --device dev1
        quota explain acme connections
        quota unset acme connections -o json
        plan list -o json
        plan show standard
        plan show standard -o json
        plan delete standard --yes
        group leave acme sensors dev1
        group delete acme sensors --yes -o json
        device delete acme dev2 --dry-run
        device delete acme dev2 --yes -o json
        token-issuer list acme
        tenant delete acme --dry-run -o json
        tenant delete other --confirm wrong
        """.strip().splitlines():
        both.same(line.strip())


def test_secrets_are_shown_once_there_as_here(both: Both) -> None:
    for line in """
        device create acme dev2
        device rotate-secret acme dev2 -o json
        admin key create ci --role viewer -o json
        admin key create ci --role viewer
        admin key create app --role tenant-admin
        admin key create app --role tenant-admin --tenant acme
        admin key rotate ci
        admin key disable ci
        admin key show ci -o json
        admin key delete ci --yes
        admin key show ci
        admin user create alice --role operator --generate -o json
        admin user set-password alice --generate
        admin user list -o json
        admin user disable alice
        admin user delete alice --yes -o json
        """.strip().splitlines():
        both.same(line.strip())
    both.same("device set-password acme dev1 --password-stdin -o json", stdin=b"other")


def test_what_a_running_hub_knows_and_does_is_the_same(both: Both) -> None:
    with hubs(both):
        for line in """
            client list acme -o json
            client list acme
            client top acme
            client top acme --by in-flight --limit 3 -o json
            client show acme c1 -o json
            client show acme c1
            client show acme nobody
            client kick acme c1 --dry-run
            client kick acme c1 --yes -o json
            client kick acme nobody --yes
            session list acme --limit 1
            session list acme -o json
            session show acme c1 -o json
            session discard acme c1 --dry-run
            session discard acme c1 --yes -o json
            queue list acme -o json
            queue show acme c1
            queue show acme c1 -o json
            queue purge acme c1 --yes
            retain list acme -o json
            retain show acme a/b -o json
            retain delete acme a/# --dry-run
            retain delete acme a/# --yes -o json
            rejected acme -o json
            ban list acme -o json
            ban remove acme failures dev1
            explain connect acme/dev1
            explain publish acme/dev1 a/b -o json
            explain subscribe acme/dev1 a/#
            alarm list -o json
            alarm show disk_low
            cluster status -o json
            cluster drain 1 --no-wait
            cluster resume 1 -o json
            cluster evict 1 --dry-run
            cluster evict 1 --yes
            """.strip().splitlines():
            both.same(line.strip())


def test_webhooks_plans_usage_and_jobs_are_the_same(both: Both) -> None:
    for path in (both.here.data_dir, both.there):
        with closing(AccountStore(sqlite_url(path / "accounts.db"), clock=ManualClock())) as store:
            begun = job_runs.begin(store, "usage", {}, Owner("host", 1, "me"))
            job_runs.end(store, begun.id, job_runs.Result.FAILED, kind="config", figures={"events": 1}, text="it is so")
    for line in """
        webhook create pager https://hooks.example.com/x --tenant acme --event client/* -o json
        webhook create pager https://hooks.example.com/x --tenant acme
        webhook create ops https://hooks.example.com/ops --event alarm/* -o json
        webhook update pager --tenant acme --disable --event quota/exceeded -o json
        webhook list --tenant acme -o json
        webhook list
        webhook show ops -o json
        webhook show ops --tenant acme
        webhook rotate ops -o json
        webhook delete ops --dry-run
        webhook delete ops --yes -o json
        plan create small connections=5 publish_messages=5/1s --from unlimited -o json
        plan create small
        plan set small connections=6 --weight 2 -o json
        plan set small --from nothing
        plan unset small connections -o json
        plan show small
        usage show acme -o json
        usage show nobody
        job list -o json
        job list
        job status -o json
        job history -o json
        job history usage
        job history nothing
        job show 1 -o json
        job show 99
        job logs 99
        job cancel 99
        job forget usage -o json
        job forget nothing
        """.strip().splitlines():
        both.same(line.strip())


@pytest.mark.parametrize(("result", "code"), [(job_runs.Result.DONE, 0), (job_runs.Result.FAILED, 2)])
def test_job_runs_there_and_is_awaited_here(
    both: Both, monkeypatch: pytest.MonkeyPatch, result: job_runs.Result, code: int
) -> None:
    """The exit code is that of the run."""

    def end(_seconds: float) -> None:
        job_runs.end(both.store, 1, result, kind="" if code == 0 else "config", figures={"events": 3}, text="it is so")

    monkeypatch.setattr("iothub.cli.job.time.sleep", end)
    found = both.remote("job", "run", "usage", "--full", "-o", "json")

    assert (found.code, found.json["result"], found.json["figures"]) == (code, result.value, {"events": 3})
    assert "started run 1 of usage" in found.err
    assert both.remote("job", "run", "--nightly").code == 2
    assert both.remote("job", "run", "nothing").code == 3


def test_the_machine_of_the_api_is_looked_at(both: Both) -> None:
    """What it says is what its API says."""
    assert both.remote("doctor", "-o", "json").json == [
        {"name": "clock", "state": "ok", "text": "right", "ms": None, "advice": None}
    ]
    assert both.remote("events", "lag", "-o", "json").json[0]["lag"] == 2
    assert 'log.level = "info"' in both.remote("config", "show").out
    assert both.remote("config", "show", "--set", "log.level=debug").code == 2


def test_streams_are_made_there(both: Both) -> None:
    """Their topics are those of the machine of the API."""
    with hubs(both):
        made = both.remote("stream", "create", "acme", "telemetry", "a/#", "--partitions", "2", "-o", "json").json
        assert (made["topic"], made["partitions"], "existing_topics" in made) == ("iothub.acme.telemetry", 2, False)
        assert [row["name"] for row in both.remote("stream", "list", "acme", "-o", "json").json] == ["telemetry"]
        shown = both.remote("stream", "show", "acme", "telemetry", "-o", "json").json
        assert (shown["filter"], shown["state"], shown["lag"]) == ("a/#", "up", None)
        assert both.remote("stream", "show", "acme", "telemetry", "--consumer-group", "g").code == 2
        assert both.remote("stream", "delete", "acme", "telemetry", "--dry-run").code == 0
        assert both.remote("stream", "delete", "acme", "telemetry", "--keep-topic", "--yes").code == 0
        assert both.remote("stream", "delete", "acme", "telemetry", "--yes").code == 3


def test_trace_and_status_of_a_hub_are_the_same(both: Both) -> None:
    with hubs(both):
        for line in """
            trace start acme --client c1 --for 1m -o json
            trace start acme --client c1 --topic a
            trace list acme -o json
            trace list acme
            trace show acme t-1 -o json
            trace show acme t-9
            trace download acme t-1
            trace tail acme t-1
            trace stop acme t-1 -o json
            trace delete acme t-1 --dry-run
            trace delete acme t-1 --yes
            config reload
            config reload -o json
            """.strip().splitlines():
            both.same(line.strip())
        status = both.remote("status", "-o", "json").json
    assert (status["state"], status["ready"], status["connections"], status["tenants"]) == ("running", True, 3, 1)
    assert both.remote("status").code == 7


def test_devices_are_imported_there_as_here(both: Both, tmp_path: Path) -> None:
    file, bad, secrets = tmp_path / "devices.csv", tmp_path / "bad.csv", tmp_path / "secrets.csv"
    file.write_text("name,password\nm1,secret-one\nm2,secret-two\n")
    bad.write_text("name,password\ndev1,x\nm 3,y\n")
    for line in (
        f"device import acme {file} --dry-run -o json",
        f"device import acme {file}",
        f"device import acme {file}",
        f"device import acme {bad}",
        f"device import nobody {file}",
        "device list acme -o json",
    ):
        both.same(line)
    file.write_text("name,password\nm1,x\nm4,x\n")
    both.same(f"device import acme {file} --from-line 3")
    both.same(f"device import acme {file} --from-line 4")
    file.write_text("name\nm5\n")

    assert both.remote("device", "import", "acme", str(file), "--secrets-to", str(secrets)).code == 0
    assert secrets.read_text().splitlines()[1].startswith("m5,acme/m5,")
    assert both.remote("device", "import", "acme", str(file), "--from", "mosquitto").code == 2


def test_rules_are_imported_there_as_here(both: Both, tmp_path: Path) -> None:
    """From our CSV, and from an ACL file of Mosquitto; bad lines are named with their numbers."""
    file, bad, foreign = tmp_path / "rules.csv", tmp_path / "bad.csv", tmp_path / "mosquitto.acl"
    file.write_text("subject,effect,action,filter\ndev1,deny,publish,config/#\n*,allow,both,a/{device}\n")
    bad.write_text("subject,effect,action,filter\nghost,allow,both,a\n")
    foreign.write_text("user dev1\ntopic read news/#\n")
    for line in (
        f"acl import acme {file} --dry-run",
        f"acl import acme {file} -o json",
        f"acl import acme {file} -o json",
        f"acl import acme {bad}",
        f"acl import nobody {file}",
        f"acl import acme {foreign} --from mosquitto",
        f"acl import acme {file} --from mosquitto",
        "acl list acme -o json",
    ):
        both.same(line)


def test_token_issuers_are_added_and_changed_there_as_here(both: Both, tmp_path: Path) -> None:
    """A shared secret is sealed there, with the pepper of that hub."""
    pem, jwks, secret = tmp_path / "fleet.pem", tmp_path / "jwks.json", tmp_path / "shared.secret"
    pem.write_text(public_pem(ES256))
    jwks.write_text(json.dumps({"keys": [jwk(ES256, "k1")]}))
    secret.write_text("s" * 40)
    for line in (
        f"token-issuer add acme fleet --public-key-file {pem} --audience iothub -o json",
        f"token-issuer add acme fleet --public-key-file {pem}",
        f"token-issuer add acme login --jwks-file {jwks} --issuer https://login.example --leeway 30s",
        f"token-issuer add acme shared --secret-file {secret} -o json",
        f"token-issuer add acme short --secret-file {pem} --algorithm ES256",
        f"token-issuer add acme wrong --public-key-file {secret}",
        "token-issuer add acme none",
        f"token-issuer add nobody fleet --public-key-file {pem}",
        "token-issuer update acme fleet",
        "token-issuer update acme fleet --issuer https://x.example --leeway 5s -o json",
        f"token-issuer update acme fleet --jwks-file {jwks}",
        f"token-issuer update acme fleet --secret-file {secret}",
        "token-issuer update acme nothing --leeway 5s",
        "token-issuer list acme -o json",
        "token-issuer remove acme login --yes",
    ):
        both.same(line)


def refuse(why: str) -> None:
    raise ConflictError(why)


def test_tenants_are_applied_there_as_here(both: Both, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step that fails leaves the ones before it done, and their secrets shown."""
    file = tmp_path / "tenants.yaml"
    file.write_text(
        "plans: [{name: tiny, limits: [connections=3]}]\n"
        "tenants: [{tenant: {name: gamma, plan: tiny}, devices: [d1], rules: ['deny * publish x/#']}]\n"
    )
    for line in (
        f"apply -f {file} --dry-run",
        f"apply -f {file} --dry-run -o json",
        f"apply -f {file}",
        f"apply -f {file}",
        f"apply -f {tmp_path / 'nothing.yaml'}",
        "tenant show gamma -o json",
    ):
        both.same(line)
    file.write_text("tenants: [{tenant: {name: gamma}, devices: []}]\n")
    both.same(f"apply -f {file} --prune --yes -o json")
    file.write_text("tenants: [{tenant: {name: delta}, devices: [d1], groups: [g, '@']}]\n")
    both.same(f"apply -f {file}")
    file.write_text("tenants: [{tenant: {name: delta}, devices: [d1], rules: ['deny * publish x/#']}]\n")
    monkeypatch.setattr(acl_rules, "add", lambda *_given: refuse("not now"))
    both.same(f"apply -f {file}")


def test_tenant_is_exported_and_imported(both: Both, tmp_path: Path) -> None:
    both.same("tenant export acme")
    file = tmp_path / "acme.json"
    both.remote("tenant", "export", "acme", "--file", str(file))
    both.same(f"tenant import {file} --name copy --dry-run -o json")
    both.same(f"tenant import {file} --name copy")
    both.same("device list copy -o json")


def test_change_has_one_line_in_the_audit_log(both: Both) -> None:
    """The API writes it, with the name of the key."""
    with hubs(both):
        both.remote("client", "kick", "acme", "c1", "--yes")

    found = both.remote("audit", "list", "-o", "json").json
    assert [(line["actor"], line["kind"]) for line in found if line["action"] == "kicked"] == [("key:cli", "client")]
    assert len(both.remote("audit", "list", "--limit", "1", "-o", "json").json) == 1


def test_without_a_hub_the_exit_code_is_the_same(both: Both) -> None:
    """The text is that of the machine that it is about."""
    for line in ("client list acme", "session show acme c1", "cluster status"):
        here, there = both.here(*line.split(), code=7), both.remote(*line.split())
        assert (there.code, there.out) == (7, "")
        assert "no hub runs in" in here.err
        assert "no hub runs in" in there.err
        assert "`iothub serve`" in there.err


def test_command_without_a_counterpart_says_what_to_do(both: Both) -> None:
    for line in ("serve", "backup there.tar", "db status", "bundle", "db status", "job plan"):
        result = both.remote(*line.split())
        assert (result.code, result.out) == (2, "")
        assert "does not work with a context (here: there)" in result.err
        assert "with --data-dir" in result.err
    assert both.remote("version").code == 0
    assert both.remote("cluster", "drain", "--self").code == 2
    assert both.remote("retain", "show", "acme", "a", "--raw").code in (2, 7)


def test_every_command_says_whether_it_works_with_a_context() -> None:
    """A new one is put into one of the two tables, or it needs neither a hub nor accounts."""
    known = {words for words, _ in commands(command)}
    there = {words for words in known if works_remotely(words)}
    here = {f"{noun} {verb}".strip() for noun, verbs in HERE.items() for verb in verbs.split()}
    neither = {words for words in known if words.partition(" ")[0] in WITHOUT_CONTEXT}

    assert {f"{noun} {verb}".strip() for noun, verbs in COMMANDS.items() for verb in verbs.split()} <= there
    assert there | here | neither == known
    assert not there & here
    assert not (there | here) & neither
    assert "context" in NOUNS
