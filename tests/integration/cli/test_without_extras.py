"""The commands of a plain installation: the libraries of the servers are not there, and who needs one hears which extra has it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXTRAS = ("crc32c", "happybase", "hiredis", "kafka", "psycopg", "pymysql", "pyspark", "redis")

_PLAIN = f"""
import importlib.abc
import importlib.util
import sys

class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {EXTRAS}:
            raise ModuleNotFoundError("No module named " + name, name=name)

sys.meta_path.insert(0, Absent())
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name.partition(".")[0] in {EXTRAS} else found(name, package)
from iothub.cli.main import run
sys.exit(run(sys.argv[1:]))
"""


def plain(*words: str, **settings: str) -> subprocess.CompletedProcess[str]:
    """Run `iothub` as in an environment without any extra."""
    return subprocess.run(
        [sys.executable, "-c", _PLAIN, *words],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        env={**os.environ, **settings},
    )


def test_doctor_looks_at_the_embedded_hub(tmp_path: Path) -> None:
    made = plain("--data-dir", str(tmp_path / "hub"), "init")
    looked = plain("--data-dir", str(tmp_path / "hub"), "doctor")

    assert made.returncode == 0, made.stderr
    assert looked.returncode == 0, looked.stdout + looked.stderr
    assert "defect" not in looked.stdout + looked.stderr


@pytest.mark.parametrize(
    ("setting", "value", "extra"),
    [
        ("IOTHUB_KAFKA__BROKERS", "127.0.0.1:1", "kafka"),
        ("IOTHUB_REDIS__ADDRESSES", "127.0.0.1:1", "redis"),
        ("IOTHUB_SQL__URL_FILE", "{url}", "mysql"),
    ],
)
def test_doctor_says_which_extra_is_missing(tmp_path: Path, setting: str, value: str, extra: str) -> None:
    url = tmp_path / "url"
    url.write_text("mysql+pymysql://iothub@127.0.0.1:1/iothub")
    url.chmod(0o600)
    plain("--data-dir", str(tmp_path / "hub"), "init")

    looked = plain("--data-dir", str(tmp_path / "hub"), "doctor", **{setting: value.format(url=url)})

    assert f"iothub[{extra}]" in looked.stdout
    assert "defect" not in looked.stdout + looked.stderr
    assert looked.returncode == 1
