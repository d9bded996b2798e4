"""The command as scripts call it: a process of its own, the exact forms, exit codes, standard streams."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.support.hubs import hub as support
from tests.support.hubs.hub import Hub
from tests.support.ports import free_port
from tests.support.waiting import PATIENCE_S


def call(data_dir: Path, *words: str, given: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    command = [str(support.IOTHUB), "--data-dir", str(data_dir), *words]
    return subprocess.run(
        command,
        input=given,
        text=True,
        capture_output=True,
        check=False,
        timeout=PATIENCE_S,
        env={**os.environ, **environment},
    )


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("forms") / "hub"
    assert call(path, "init").returncode == 0
    return path


def test_no_terminal_means_no_question(data_dir: Path) -> None:
    """Without a terminal nothing ever waits for an answer."""
    call(data_dir, "tenant", "create", "asked")

    assert call(data_dir, "device", "set-password", "asked", "dev1", given="").returncode == 2
    assert call(data_dir, "tenant", "delete", "asked", given="asked\n").returncode == 2


def test_settings_of_the_environment_are_checked(data_dir: Path) -> None:
    done = call(data_dir, "config", "check", IOTHUB_LISTENERS__TCP__PRT="1")

    assert done.returncode == 2
    assert "environment variable IOTHUB_LISTENERS__TCP__PRT" in done.stderr
    assert call(data_dir, "config", "check", IOTHUB_LISTENERS__TCP__PORT="0").returncode == 0


@pytest.fixture(scope="module")
def named(data_dir: Path) -> Path:
    """A tenant whose name for people needs more than ASCII."""
    call(data_dir, "tenant", "create", "named", "--display-name", "Prüfstand €")
    return data_dir


ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"}


@pytest.mark.parametrize("form", ["json", "jsonl"])
def test_json_has_the_letters_themselves_where_standard_output_takes_them(named: Path, form: str) -> None:
    """And is the same object in ASCII elsewhere."""
    plain = call(named, "tenant", "show", "named", "-o", form, PYTHONIOENCODING="utf-8").stdout
    escaped = call(named, "tenant", "show", "named", "-o", form, **ASCII).stdout

    assert '"display_name": "Prüfstand €"' in plain
    assert '"display_name": "Pr\\u00fcfstand \\u20ac"' in escaped
    assert json.loads(escaped) == json.loads(plain)


@pytest.mark.parametrize("form", ["table", "csv", "json", "jsonl"])
@pytest.mark.parametrize("environment", [ASCII, {"PYTHONIOENCODING": "latin-1"}])
def test_locale_without_a_letter_is_no_defect(named: Path, form: str, environment: dict[str, str]) -> None:
    command = [str(support.IOTHUB), "--data-dir", str(named), "tenant", "show", "named", "-o", form]

    done = subprocess.run(
        command, capture_output=True, check=False, timeout=PATIENCE_S, env={**os.environ, **environment}
    )

    assert (done.returncode, done.stderr) == (0, b"")
    assert b"fstand" in done.stdout


def test_broken_pipe_is_silent(data_dir: Path) -> None:
    """`iothub config show | head -1` leaves no complaint."""
    command = f"{support.IOTHUB} --data-dir {data_dir} quota explain piped | head -1"
    call(data_dir, "tenant", "create", "piped")

    done = subprocess.run(["bash", "-c", command], text=True, capture_output=True, check=False, timeout=PATIENCE_S)

    assert done.stdout.startswith("NAME")
    assert done.stderr == ""


def test_refusals_of_serve_come_before_anything_is_touched(data_dir: Path, tmp_path: Path) -> None:
    """Configuration 2, no data directory 3."""
    for words, mistakes in (
        (["--set", "listeners.tcp.prot=1"], 1),
        (["--set", "listeners.tls.port=8883"], 2),  # certificate and key
        (
            [
                "--set",
                "listeners.tls.port=8883",
                "--set",
                "listeners.tls.cert_file=/no",
                "--set",
                "listeners.tls.key_file=/no",
            ],
            2,
        ),
    ):
        done = call(data_dir, "serve", *words)
        assert (done.returncode, done.stderr.count("\n"), done.stdout) == (2, mistakes, ""), done
    assert call(tmp_path / "none", "serve").returncode == 3
    assert not (tmp_path / "none").exists()


@pytest.fixture
def hub(tmp_path: Path) -> Hub:
    made = Hub(tmp_path / "hub", ports={"tcp": free_port(), "http": free_port()})
    made.init()
    return made


def test_hub_serves_says_so_and_ends(hub: Hub) -> None:
    """`serve` stays in the foreground; a second one exits 4 and names the first; SIGTERM ends it with 0."""
    hub.start()
    try:
        shown = json.loads(hub.run("status", "-o", "json").stdout)
        assert (shown["state"], shown["ready"], shown["reasons"], shown["alarms"]) == ("running", True, [], [])
        second = hub.run("serve", "--set", "listeners.tcp.port=0", check=False)
        assert second.returncode == 4
        assert hub.process is not None
        assert f"process {hub.process.pid}" in second.stderr
        checked = hub.run("serve", "--set", "listeners.tcp.prot=0", check=False)
        assert checked.returncode == 2
        assert hub.stop() == 0
    finally:
        hub.close()
    assert hub.run("status", check=False).returncode == 7
    assert "Traceback" not in hub.log
