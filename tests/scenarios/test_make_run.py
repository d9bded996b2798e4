"""What `make run` prints works word by word, its data stays, and Ctrl-C ends it."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.hubs.hub import CALM
from tests.support.ports import free_port
from tests.support.waiting import until

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 300  # only what hangs comes to it
FILES = ("prlimit", "--nofile=1024:1024")  # as many descriptors as a plain machine allows


@contextmanager
def demo(data_dir: Path, port: int, workers: int = 1) -> Iterator[list[str]]:
    """`make run` without the Makefile; the two commands that it prints. Ended as by Ctrl-C; the hub's log is beside its directory."""
    options = [f"--port={port}", f"--data-dir={data_dir}", f"--workers={workers}"]
    with data_dir.with_suffix(".log").open("ab") as log:
        running = subprocess.Popen(
            [*FILES, sys.executable, str(ROOT / "ops" / "demo.py"), *options],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env=CALM | os.environ,
        )
    assert running.stdout is not None
    try:
        lines: list[str] = []
        while len(lines) < 2:
            line = running.stdout.readline()
            assert line, f"make run ended with {running.wait()}"
            if line.startswith("mosquitto_"):
                lines.append(line.rstrip("\n"))
        yield lines
        running.send_signal(signal.SIGINT)
        assert running.wait(timeout=TIMEOUT_S) == 0
    finally:
        running.kill()
        running.wait()
        running.stdout.close()


def received(line: str, count: int) -> list[str]:
    """What the printed mosquitto_sub shows; `-C` only makes it end."""
    words = [*shlex.split(line), "-C", str(count), "-W", str(TIMEOUT_S)]
    return subprocess.run(words, text=True, capture_output=True, check=True, timeout=TIMEOUT_S).stdout.splitlines()


def test_printed_commands_work_word_by_word(program: Callable[[str], str], tmp_path: Path) -> None:
    """Subscribe and publish as printed; stop the subscriber, publish again, start it again: nothing is lost; also over a restart."""
    for name in ("mosquitto_sub", "mosquitto_pub"):
        program(name)
    data_dir, port = tmp_path / "demo", free_port()

    with demo(data_dir, port) as (subscribe, publish):
        assert subscribe.startswith("mosquitto_sub ")
        assert publish.startswith("mosquitto_pub ")
        subscriber = subprocess.Popen(["/bin/sh", "-c", f"exec {subscribe}"], text=True, stdout=subprocess.PIPE)
        assert subscriber.stdout is not None
        first = first_line(subscriber, publish)
        subscriber.terminate()
        subscriber.wait(timeout=TIMEOUT_S)
        subscriber.stdout.close()
        assert first == "room/temperature 21.5\n"
        subprocess.run(["/bin/sh", "-c", publish], check=True, timeout=TIMEOUT_S)

    with demo(data_dir, port) as again:
        assert again == [subscribe, publish]
        assert received(subscribe, 1) == ["room/temperature 21.5"]
    log = [json.loads(line) for line in data_dir.with_suffix(".log").read_text().splitlines()]
    assert "ready" in [line["event"] for line in log]
    assert [line for line in log if line["level"] != "info"] == [], "whoever tries the hub is not bothered"


def test_session_made_with_two_workers_gets_its_messages_from_one_hub(
    program: Callable[[str], str], tmp_path: Path
) -> None:
    """`make run WORKERS=2`, Ctrl-C, `make run`."""
    for name in ("mosquitto_sub", "mosquitto_pub"):
        program(name)
    data_dir, port = tmp_path / "demo", free_port()

    with demo(data_dir, port, workers=2) as (subscribe, publish):
        subprocess.run([*shlex.split(subscribe), "-E"], check=True, timeout=TIMEOUT_S)
        subprocess.run(["/bin/sh", "-c", publish], check=True, timeout=TIMEOUT_S)
        until(lambda: '"workers": 2' in data_dir.with_suffix(".log").read_text(), "both workers", TIMEOUT_S)
    with demo(data_dir, port) as again:
        assert again == [subscribe, publish]
        assert received(subscribe, 1) == ["room/temperature 21.5"]

    log = [json.loads(line) for line in data_dir.with_suffix(".log").read_text().splitlines()]
    assert [line for line in log if line["level"] != "info"] == [], "whoever tries the hub is not bothered"


def first_line(subscriber: subprocess.Popen[str], publish: str) -> str:
    """Publish until the subscriber, who needs a moment to subscribe, shows something.

    The whole group is killed: a publisher that is left would take over the next one's session, which has the same Client Identifier.
    """
    publisher = subprocess.Popen(["/bin/sh", "-c", f"while {publish}; do sleep 0.2; done"], start_new_session=True)
    try:
        assert subscriber.stdout is not None
        return subscriber.stdout.readline()
    finally:
        os.killpg(publisher.pid, signal.SIGKILL)
        publisher.wait()


def test_address_and_password_of_the_api_are_printed(tmp_path: Path) -> None:
    """Who logs in with them may do everything."""
    words = ["--port", str(free_port()), "--api-port", str(free_port()), "--data-dir", str(tmp_path / "demo")]
    command, environment = (
        [sys.executable, str(ROOT / "ops" / "demo.py"), *words],
        os.environ | {"IOTHUB_ADMIN__ENABLED": "on"},
    )
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as running:
        assert running.stdout is not None
        line = next(line for line in running.stdout if line.startswith("Dashboard and REST API: "))
        found = re.match(r".*: (\S+), user (\w+), password (\S+)", line)
        assert found is not None
        address, name, password = found.groups()
        body = json.dumps({"name": name, "password": password}).encode()
        request = urllib.request.Request(f"{address}/api/v1/auth/login", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
            assert json.load(answer)["role"] == "platform-admin"
        running.send_signal(signal.SIGINT)
        assert running.wait(timeout=TIMEOUT_S) == 0


@pytest.mark.parametrize("word", ["abc", "", "0", "65536", "1e3", "-1", "9" * 5000])
def test_port_that_is_none_is_one_clear_line(word: str) -> None:
    """Not the usage of a script that nobody called."""
    command = [sys.executable, str(ROOT / "ops" / "demo.py"), f"--port={word}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)

    assert done.returncode != 0
    assert done.stderr.splitlines() == [
        f"make run: PORT={word} is not a port: expected a number from 1 to 65535, such as make run PORT=1884"
    ]
