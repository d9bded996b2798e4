"""Which JDK is good enough, and when fetched libraries are up to date."""

from __future__ import annotations

from pathlib import Path

import pytest

from ops.services import tools
from ops.services.errors import ServicesError
from ops.services.places import Places, pom
from ops.services.tools import Tools, find_tools, java_version, libraries


def _jdk(folder: Path, version: str) -> Path:
    (folder / "bin").mkdir(parents=True)
    (folder / "bin/javac").touch()
    (folder / "release").write_text(f'IMPLEMENTOR="Debian"\nJAVA_VERSION="{version}"\n')
    return folder


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine with nothing on its PATH."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(tools, "_JVM_FOLDER", tmp_path / "jvm")
    return tmp_path


@pytest.mark.parametrize(("version_text", "version"), [("17.0.15", 17), ("21", 21), ("1.8.0_402", 1)])
def test_java_version_is_read_from_the_jdks_own_file(tmp_path: Path, version_text: str, version: int) -> None:
    """No program needs to be run to know it."""
    assert java_version(_jdk(tmp_path / "jdk", version_text)) == version


def test_folder_that_is_no_jdk_has_version_zero(tmp_path: Path) -> None:
    """It is passed over."""
    assert java_version(tmp_path) == 0


def test_jdk_that_is_too_old_or_too_new_is_passed_over(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """JAVA_HOME is only the first place where we look."""
    monkeypatch.setenv("JAVA_HOME", str(_jdk(bare / "old", "11.0.2")))
    _jdk(bare / "jvm/java-25", "25.0.1")
    good = _jdk(bare / "jvm/java-21", "21.0.4")
    maven = bare / "bin/mvn"
    maven.parent.mkdir()
    maven.touch(0o755)

    assert find_tools(lambda line: None) == Tools(good, maven)


def test_missing_jdk_is_named_with_what_to_install(bare: Path) -> None:
    """No apt-get here: a clear line."""
    with pytest.raises(ServicesError, match="apt-get install openjdk-17-jdk-headless"):
        find_tools(lambda line: None)


def test_missing_maven_is_named_with_what_to_install(bare: Path) -> None:
    """As above."""
    _jdk(bare / "jvm/java-17", "17.0.15")

    with pytest.raises(ServicesError, match="apt-get install maven"):
        find_tools(lambda line: None)


class _Maven(Tools):
    """Puts one jar where Maven would put a hundred, or breaks off on the way."""

    __slots__ = ()

    def run_maven(self, project: Path, *words: str) -> None:
        folder = Path(next(word for word in words if word.startswith("-DoutputDirectory=")).partition("=")[2])
        folder.mkdir(parents=True)
        if "broken" in str(self.maven):
            raise ServicesError("no network")
        (folder / f"{project.parent.name}.jar").touch()


def test_libraries_are_fetched_once(tmp_path: Path) -> None:
    """The folder carries the pom's digest, so it is known to be what the pom names."""
    said: list[str] = []
    maven = _Maven(tmp_path, tmp_path / "mvn")

    first = libraries("kafka", Places(tmp_path), maven, said.append)
    again = libraries("kafka", Places(tmp_path), maven, said.append)

    assert first == again
    assert [jar.name for jar in first.iterdir()] == ["kafka.jar"]
    assert len(said) == 1


def test_libraries_of_an_older_pom_are_replaced(tmp_path: Path) -> None:
    """Not kept for ever: 120 MB each."""
    old = tmp_path / "lib/kafka-0123456789ab"
    old.mkdir(parents=True)

    libraries("kafka", Places(tmp_path), _Maven(tmp_path, tmp_path / "mvn"), lambda line: None)

    assert not old.exists()


def test_half_fetched_libraries_are_not_used(tmp_path: Path) -> None:
    """A fetch that was broken off is begun again."""
    with pytest.raises(ServicesError, match="no network"):
        libraries("hbase", Places(tmp_path), _Maven(tmp_path, tmp_path / "broken"), lambda line: None)

    folder = libraries("hbase", Places(tmp_path), _Maven(tmp_path, tmp_path / "mvn"), lambda line: None)

    assert [jar.name for jar in folder.iterdir()] == ["hbase.jar"]


def test_poms_are_where_the_servers_look() -> None:
    """One each."""
    assert pom("kafka").is_file()
    assert pom("hbase").is_file()
