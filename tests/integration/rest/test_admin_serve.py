"""`iothub admin serve` beside a real hub, as an operator and a script have it: processes, sockets, HTTP."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from iothub.base.errors import UnavailableError
from iothub.rest.serve import listening
from tests.support.clients.raw import RawClient
from tests.support.hubs.datadirs import fresh_hub
from tests.support.hubs.hub import IOTHUB, Hub
from tests.support.ports import free_port
from tests.support.waiting import PATIENCE_S, until


class Reply(NamedTuple):
    """What came back."""

    status: int
    headers: Any
    json: Any


class Served:
    """The API's process."""

    def __init__(self, hub: Hub, *words: str) -> None:
        self.port = free_port()
        command = [str(IOTHUB), "--data-dir", str(hub.data_dir), "admin", "serve", "--port", str(self.port), *words]
        self.log = hub.data_dir.parent / "api.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        until(lambda: '"event": "ready"' in self.log.read_text(), "the API is ready")

    def __call__(self, method: str, path: str, body: object = None, *, key: str | None, **headers: str) -> Reply:
        content = None if body is None else json.dumps(body).encode()
        sent = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", content, headers, method=method)
        sent.add_header("Content-Type", "application/json")
        if key is not None:
            sent.add_header("Authorization", f"Bearer {key}")
        try:
            with urllib.request.urlopen(sent, timeout=PATIENCE_S) as answer:
                return Reply(answer.status, answer.headers, _read(answer.read()))
        except urllib.error.HTTPError as error:
            with error:
                return Reply(error.code, error.headers, _read(error.read()))

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE_S)


def _read(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return body.decode()


def make_key(hub: Hub, name: str, *words: str) -> str:
    made = hub.run("admin", "key", "create", name, *words, "-o", "json")
    return str(json.loads(made.stdout)["key"])


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    made = fresh_hub(tmp_path_factory.mktemp("api"))
    made.ports["http"] = free_port()
    made.start()
    yield made
    made.finish()


@pytest.fixture(scope="module")
def root(hub: Hub) -> str:
    return make_key(hub, "root", "--role", "platform-admin")


@pytest.fixture(scope="module")
def api(hub: Hub) -> Iterator[Served]:
    served = Served(hub)
    yield served
    assert served.stop() == 0
    assert "Traceback" not in served.log.read_text()


def test_contract(api: Served, root: str) -> None:
    """What a portal is written against."""
    assert api("GET", "/api/v1/tenants", key=None).status == 401
    document = api("GET", "/api/v1/openapi.json", key=root)
    assert (document.status, document.json["openapi"][:3]) == (200, "3.1")
    assert api("POST", "/api/v1/tenants", {"name": "portal"}, key=root).status == 201
    again = api("POST", "/api/v1/tenants", {"name": "portal"}, key=root)
    assert (again.status, again.json["code"]) == (409, "conflict")
    assert again.headers["Content-Type"] == "application/problem+json"
    assert "iothub" in api("GET", "/", key=None).json


def test_device_made_here_connects_and_is_gone_when_it_is_disabled(hub: Hub, api: Served, root: str) -> None:
    api("POST", "/api/v1/tenants", {"name": "fleet", "plan": "unlimited"}, key=root)
    device = api("POST", "/api/v1/tenants/fleet/devices", {"name": "d1"}, key=root).json
    client = RawClient(hub.ports["tcp"], 5)
    try:
        client.connect("c1", username="fleet/d1", password=device["secret"])
        answer = api("POST", "/api/v1/tenants/fleet/devices/d1:disable", key=root)
        assert answer.status == 200
        client.expect_closed()
    finally:
        client.close()


def test_hub_is_asked_and_changed(hub: Hub, api: Served, root: str) -> None:
    """Sessions, status, metrics; a tenant's key sees its own."""
    api("POST", "/api/v1/tenants", {"name": "live"}, key=root)
    own = make_key(hub, "live-app", "--role", "tenant-admin", "--tenant", "live")

    assert api("GET", "/api/v1/status", key=root).json["hub"]["ready"] is True
    assert api("GET", "/api/v1/tenants/live/clients", key=own).json == {"items": [], "unanswered": []}
    assert api("POST", "/api/v1/tenants/live/clients/none:kick", key=own).status == 404
    assert api("GET", "/api/v1/tenants/portal/clients", key=own).status == 404
    assert api("GET", "/api/v1/tenants/live/sessions", key=own).json == {"items": []}
    assert api("DELETE", "/api/v1/tenants/live/sessions/none", key=own).status == 404
    assert api("GET", "/api/v1/tenants/portal/sessions", key=own).status == 404
    assert "iothub_connections" in api("GET", "/api/v1/metrics", key=root).json
    assert api("GET", "/api/v1/tenants/live/metrics", key=own).status == 200
    assert api("GET", "/api/v1/metrics", key=own).status == 403


def test_changes_of_both_faces_are_in_one_audit_log(hub: Hub, api: Served, root: str) -> None:
    hub.run("tenant", "create", "audited")
    api("POST", "/api/v1/tenants/audited:suspend", key=root)

    lines = hub.rows("audit", "list", "--tenant", "audited")

    assert [str(line["actor"]).partition(":")[0] for line in lines] == ["key", "cli"]


def test_port_in_use_is_named(hub: Hub, api: Served) -> None:
    """Exit code 7, and no traceback."""
    done = hub.run("admin", "serve", "--port", str(api.port), check=False)

    assert done.returncode == 7
    assert f"127.0.0.1:{api.port}" in done.stderr
    assert "Traceback" not in done.stderr
    with pytest.raises(UnavailableError, match="--port"):
        listening("192.0.2.1", 1)


def test_rubbish_on_the_socket_is_no_traceback(api: Served, root: str) -> None:
    for rubbish in (b"\x16\x03\x01\x02\x00", b"GET / HTTP/9.9\r\n\r\n", b"GET /" + b"x" * 100_000, b"\r\n" * 1000):
        with closing(socket.create_connection(("127.0.0.1", api.port), timeout=PATIENCE_S)) as client:
            client.sendall(rubbish)
            client.shutdown(socket.SHUT_WR)
            while client.recv(65_536):
                pass

    assert api("GET", "/api/v1/whoami", key=root).status == 200
    assert "Traceback" not in api.log.read_text()


def test_without_the_extra_the_command_says_which(hub: Hub, tmp_path: Path) -> None:
    """And no other command needs it."""
    program = (
        "import sys\n"
        "class Absent:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.partition('.')[0] in ('fastapi', 'uvicorn', 'starlette', 'pydantic'):\n"
        "            raise ModuleNotFoundError('No module named ' + name, name=name)\n"
        "sys.meta_path.insert(0, Absent())\n"
        "from iothub.cli.main import run\n"
        "sys.exit(run(sys.argv[1:]))\n"
    )
    python = IOTHUB.parent / "python"

    def plain(*words: str) -> subprocess.CompletedProcess[str]:
        command = [str(python), "-c", program, "--data-dir", str(hub.data_dir), *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False, cwd=tmp_path)

    served = plain("admin", "serve")
    assert served.returncode == 2
    assert "install iothub[admin]" in served.stderr
    assert plain("admin", "key", "list").returncode == 0
