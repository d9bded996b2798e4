"""Maven is asked again when it fails, and its own words reach the person: with a stand-in for `mvn`."""

from __future__ import annotations

from pathlib import Path

import pytest

from ops.services import tools as tools_module
from ops.services.errors import ServicesError
from ops.services.places import pom
from ops.services.tools import Tools


def _maven(tmp_path: Path, script: str) -> Tools:
    path = tmp_path / "mvn"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return Tools(tmp_path / "jdk", path)


def test_maven_gets_the_project_and_the_jdk(tmp_path: Path) -> None:
    """Quiet, without questions, on the JDK that was chosen."""
    arguments = tmp_path / "told"

    _maven(tmp_path, f'echo "$JAVA_HOME $@" > {arguments}').run_maven(pom("kafka"), "package")

    assert arguments.read_text() == f"{tmp_path}/jdk -q -B -ntp -f {pom('kafka')} package\n"


def test_failed_maven_is_asked_once_more(tmp_path: Path) -> None:
    """A network may hiccup."""
    _maven(tmp_path, f"test -e {tmp_path}/once || {{ touch {tmp_path}/once; exit 1; }}").run_maven(pom("kafka"), "x")


def test_maven_that_fails_twice_is_quoted_without_colours(tmp_path: Path) -> None:
    """What it says names the file and the line, or the host that it does not reach."""
    tools = _maven(tmp_path, "printf '\\033[1;31mERROR\\033[m Queue.java:[7,1] class expected\\n'; exit 1")

    with pytest.raises(
        ServicesError, match=r"^Maven failed for ops/hbase/pom\.xml(?s:.*)ERROR Queue\.java:\[7,1\] class expected$"
    ):
        tools.run_maven(pom("hbase"), "package")


def test_maven_that_does_not_end_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounded, as everything that waits."""
    monkeypatch.setattr(tools_module, "_MAVEN_S", 0.1)

    with pytest.raises(ServicesError, match="did not end within 0 s"):
        _maven(tmp_path, "exec sleep 60").run_maven(pom("hbase"), "package")
