"""What tests run their commands with: processes of their own, forked from one that has loaded the program."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest

from tests.support.hubs import warm
from tests.support.hubs.datadirs import fresh_hub
from tests.support.hubs.hub import Hub
from tests.support.waiting import PATIENCE_S, until


def run(
    *words: str, stdin: str | None = None, timeout_s: float = PATIENCE_S, **environment: str
) -> tuple[int, str, str]:
    return warm.run(words, stdin=stdin, environment={**os.environ, **environment}, timeout_s=timeout_s)


def test_command_has_arguments_files_and_an_exit_code_of_its_own(tmp_path: Path) -> None:
    """As if the program had been started."""
    data = str(tmp_path / "hub")

    assert run("--data-dir", data, "init")[0] == 0
    assert run("--data-dir", data, "tenant", "create", "acme")[0] == 0
    code, out, err = run("--data-dir", data, "device", "create", "acme", "d", "--password-stdin", stdin="secret")
    assert (code, out, err.splitlines()[0]) == (0, "", "created device acme/d")
    assert run("--data-dir", data, "-o", "json", "device", "list", "acme")[1].startswith("[")
    assert run("--data-dir", data, "tenant", "show", "nobody")[0] == 3


def test_program_of_a_shell_is_forked_unless_it_serves(tmp_path: Path) -> None:
    """Its input, its directory and its exit code are those of the shell."""
    warm.put_program(tmp_path, Path("/bin/echo"))

    def typed(words: str) -> tuple[int, str]:
        environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
        done = subprocess.run(["sh", "-c", words], cwd=tmp_path, env=environment, stdout=subprocess.PIPE, check=False)
        return done.returncode, done.stdout.decode()

    assert typed("iothub --data-dir hub init && iothub --data-dir hub tenant create acme")[0] == 0
    assert typed("echo -n secret | iothub --data-dir hub device create acme 'a.b' --password-stdin") == (0, "")
    assert typed("iothub --data-dir hub -o json device list acme | grep -c 'a.b'") == (0, "1\n")
    assert typed("iothub --data-dir hub tenant show nobody")[0] == 3
    assert typed("iothub --data-dir hub serve --check") == (0, "--data-dir hub serve --check\n")


def test_environment_is_the_callers_and_leaves_with_the_process(tmp_path: Path) -> None:
    """The next command has its own."""
    config = ("--data-dir", str(tmp_path / "hub"), "config", "check")
    run("--data-dir", str(tmp_path / "hub"), "init")

    assert run(*config, IOTHUB_QUEUES__DRIVER="nobodys")[0] == 2
    assert run(*config)[0] == 0


def test_command_that_lasts_too_long_is_ended(tmp_path: Path) -> None:
    """And the next one runs. A hub never ends by itself."""
    data_dir = str(fresh_hub(tmp_path).data_dir)
    with pytest.raises(subprocess.TimeoutExpired):
        run("--data-dir", data_dir, "serve", "--set", "listeners.tcp.port=0", timeout_s=0.1)

    assert run("--version")[:2] == (0, f"iothub {metadata.version('iothub')}\n")


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    """A running hub that was forked."""
    made = fresh_hub(tmp_path)
    made.start()
    assert isinstance(made.process, warm.Launched)
    yield made
    made.close()


def test_forked_hub_ends_as_a_started_one(hub: Hub) -> None:
    """Its own number, its own log, its own answer to a signal; the one that is killed answers nothing."""
    first = hub.process
    assert first is not None
    assert first.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        first.wait(0.01)
    until(lambda: '"event": "ready"' in hub.log, "the hub has told where it is")
    assert json.loads((hub.data_dir / "hub.json").read_text())["pid"] == first.pid
    assert hub.stop() == 0
    first.send_signal(signal.SIGTERM)  # nobody is there any more
    assert (first.poll(), first.wait()) == (0, 0)

    hub.start()
    hub.kill()

    assert hub.process is not None
    assert hub.process.wait() == -signal.SIGKILL
    assert "Traceback" not in hub.log


def test_hub_that_would_load_something_else_is_started(tmp_path: Path) -> None:
    """A folder of plug-ins, or the other twin, is told to an interpreter before it loads anything."""
    assert warm.is_like_ours({**os.environ, "IOTHUB_SQL__POLL_INTERVAL": "1s"})
    assert not warm.is_like_ours({**os.environ, "PYTHONPATH": str(tmp_path)})
    twin = "0" if os.environ.get("IOTHUB_PURE_PYTHON") == "1" else "1"
    assert not warm.is_like_ours({**os.environ, "IOTHUB_PURE_PYTHON": twin})
