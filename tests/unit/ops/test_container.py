"""`ops/container`: the file of the image of one hub, and its start; tests/nightly builds the image."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from iothub.config.loader import load

ROOT = Path(__file__).parents[3]
FILE = ROOT / "ops/container/Containerfile"
PROGRAMS = Path(sys.executable).parent


def test_containerfile_passes_the_linter() -> None:
    done = subprocess.run([PROGRAMS / "hadolint", FILE], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr


def test_container_is_no_roots_and_has_a_health_check_and_a_volume() -> None:
    text = FILE.read_text()
    last = text.split("\nFROM ")[-1]

    assert re.search(r"^USER 10001$", last, re.MULTILINE)
    assert re.search(r"^HEALTHCHECK .*\\\n *CMD .*8080/livez", last, re.MULTILINE)
    assert re.search(r"^VOLUME /data$", last, re.MULTILINE)
    copied = [line.split()[-2] for line in text.splitlines() if line.startswith("COPY") and "--from" not in line]
    assert all((ROOT / name).exists() for name in copied)


def test_settings_of_the_container_are_ours() -> None:
    environment = dict(re.findall(r"\b(IOTHUB_[A-Z]+__\w+)=(\S+)", FILE.read_text()))

    config = load(environment=environment).config

    assert (config.listeners.tcp.bind, config.http.bind, config.http.port) == ("0.0.0.0", "127.0.0.1", 8080)


def test_first_start_makes_the_data_directory_and_the_next_one_uses_it(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    double = tmp_path / "bin/iothub"
    double.write_text(
        '#!/bin/sh\necho "$*"\nif [ "$2" = init ]; then mkdir -p "$IOTHUB_DATA_DIR"; touch "$IOTHUB_DATA_DIR/lock"; fi\n'
    )
    double.chmod(0o755)
    environment = {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}", "IOTHUB_DATA_DIR": str(tmp_path / "data")}

    def start(*words: str) -> list[str]:
        command = ["sh", str(ROOT / "ops/container/start"), *words]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.splitlines()

    assert start("iothub", "tenant", "list") == ["tenant list"]
    assert start("iothub", "serve") == ["--no-input init", "serve"]
    assert start("iothub", "serve") == ["serve"]
