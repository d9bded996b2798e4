"""The REST API that a hub starts: there when the hub is, back when it was killed, and never in the way of the hub."""

from __future__ import annotations

import json
import os
import signal
import socket
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.hubs.datadirs import fresh_hub
from tests.support.hubs.hub import Hub
from tests.support.ports import free_port
from tests.support.waiting import PATIENCE_S, until


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    made = fresh_hub(tmp_path)
    made.environment = {"IOTHUB_ADMIN__ENABLED": "on"}
    made.settings["admin.port"] = str(free_port())
    yield made
    if made.is_running():
        made.finish()
    made.close()


def address_of(hub: Hub) -> str:
    """Where the API says that it listens; "": it says nothing."""
    try:
        return str(json.loads((hub.data_dir / "api.json").read_text()).get("address", ""))
    except OSError:
        return ""


def is_up(hub: Hub) -> bool:
    try:
        with urllib.request.urlopen(
            f"http://127.0.0.1:{hub.settings['admin.port']}/livez", timeout=PATIENCE_S
        ) as answer:
            return bool(json.load(answer) == {"status": "up"})
    except OSError:
        return False


def children(hub: Hub) -> list[int]:
    """The processes of the API, as the system lists them."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                words = (folder / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if str(hub.data_dir).encode() in words and b"--of-hub" in words:
                found.append(int(folder.name))
    return found


def test_api_is_there_with_the_hub_and_back_when_it_was_killed(hub: Hub) -> None:
    hub.start()
    until(lambda: is_up(hub), "the API answers")
    assert address_of(hub) == f"http://127.0.0.1:{hub.settings['admin.port']}"
    (first,) = children(hub)

    os.kill(first, signal.SIGKILL)
    until(lambda: children(hub) not in ([], [first]) and is_up(hub), "the API is back")

    assert json.loads(hub.run("status", "-o", "json").stdout)["ready"] is True
    hub.stop()
    assert children(hub) == []
    assert not (hub.data_dir / "api.json").exists()


def test_port_that_is_taken_is_an_alarm_and_not_the_end(hub: Hub) -> None:
    """Of several workers the supervisor has one API, which ends with it, also when it is killed."""
    hub.settings["node.workers"] = "2"
    with closing(socket.create_server(("127.0.0.1", int(hub.settings["admin.port"])))):
        hub.start()
        until(lambda: "api_down" in hub.run("status", check=False).stdout, "the alarm is raised")
    assert f"cannot listen on 127.0.0.1:{hub.settings['admin.port']}" in hub.log
    until(lambda: is_up(hub), "the API has the port at last")
    assert len(children(hub)) == 1

    hub.kill()

    until(lambda: children(hub) == [], "the API has ended")
