"""JDK and Maven: found on the machine or installed from Debian's packages; what a pom names is resolved, what it builds is built.

Knows no server. What is there already is left alone: the folder of libraries carries the pom's digest in its name.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ops.services.errors import ServicesError
from ops.services.places import ROOT, Places, pom

OLDEST_JAVA, NEWEST_JAVA = 17, 23  # Kafka 4 needs 17; Hadoop's security calls were taken out of Java 24
_JDK_PACKAGES = ("openjdk-17-jdk-headless", "openjdk-21-jdk-headless")
_JVM_FOLDER = Path("/usr/lib/jvm")
_INSTALL_S = 600.0
_MAVEN_S = 900.0
_MAVEN_TRIES = 2
_ERROR_LINES = 6
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Tools:
    """A JDK's folder and Maven's command."""

    java_home: Path
    maven: Path

    @property
    def java(self) -> str:
        return str(self.java_home / "bin" / "java")

    def run_maven(self, project: Path, *words: str) -> None:
        """Run Maven on a project; once more when it fails, for a network that hiccups.

        Raises:
            ServicesError: With Maven's own words.
        """
        command = [str(self.maven), "-q", "-B", "-ntp", "-f", str(project), *words]
        environment = {**os.environ, "JAVA_HOME": str(self.java_home)}
        said = ""
        for _ in range(_MAVEN_TRIES):
            code, said = _run(command, _MAVEN_S, environment)
            if code == 0:
                return
        lines = [line for line in said.splitlines() if line.strip()]
        shown = "\n".join(lines[:_ERROR_LINES])
        raise ServicesError(
            f"Maven failed for {project.relative_to(ROOT)}; can it reach its repository? Its output:\n{shown}"
        )


def find_tools(say: Say) -> Tools:
    """Return JDK and Maven; whatever is missing is installed when this is Debian or Ubuntu and we are root.

    Raises:
        ServicesError: Missing, and not to be installed from here.
    """
    java_home = _java_home()
    if java_home is None:
        install(_JDK_PACKAGES, say)
        java_home = _java_home()
    if java_home is None:
        raise ServicesError(
            f"Kafka and HBase need a JDK from {OLDEST_JAVA} to {NEWEST_JAVA}, with javac; found none in JAVA_HOME, PATH or /usr/lib/jvm. "
            f"Install one (Debian: apt-get install {_JDK_PACKAGES[0]}) and try again"
        )
    if shutil.which("mvn") is None:
        install(("maven",), say)
    maven = shutil.which("mvn")
    if maven is None:
        raise ServicesError(
            "Kafka and HBase are fetched with Maven; mvn is not on the PATH. Install it (Debian: apt-get install maven) and try again"
        )
    return Tools(java_home, Path(maven))


def libraries(server: str, places: Places, tools: Tools, say: Say) -> Path:
    """Return the folder with every jar that a server's pom names, fetched if it is not there yet."""
    digest = hashlib.sha256(pom(server).read_bytes()).hexdigest()[:12]
    folder = places.libraries / f"{server}-{digest}"
    if folder.is_dir():
        return folder
    say(f"fetching {server}'s libraries with Maven (the first time up to 200 MB) ...")
    half = places.libraries / f"{server}.half"
    shutil.rmtree(half, ignore_errors=True)
    tools.run_maven(pom(server), f"-DoutputDirectory={half}", "-DincludeScope=runtime", "dependency:copy-dependencies")
    for older in places.libraries.glob(f"{server}-*"):
        shutil.rmtree(older)
    half.rename(folder)
    return folder


def coprocessor(tools: Tools, say: Say, *, is_forced: bool = False) -> Path:
    """Return our jar for HBase, built if a source is newer than it (`is_forced`: in any case)."""
    version = re.search(r"<version>([^<]+)</version>", pom("hbase").read_text(encoding="utf-8"))
    if version is None:
        raise ServicesError(f"{pom('hbase')}: expected a version of its own")
    jar = ROOT / "build" / "hbase" / f"iothub-hbase-{version[1]}.jar"
    sources = [pom("hbase"), *(ROOT / "ops/hbase/src").rglob("*.java")]
    if is_forced or not jar.exists() or any(source.stat().st_mtime > jar.stat().st_mtime for source in sources):
        say("building the iothub-hbase jar with Maven ...")
        jar.unlink(missing_ok=True)
        tools.run_maven(pom("hbase"), "package")
    return jar


def _java_home() -> Path | None:
    for home in _java_homes():
        if (home / "bin" / "javac").exists() and OLDEST_JAVA <= java_version(home) <= NEWEST_JAVA:
            return home
    return None


def _java_homes() -> Iterator[Path]:
    if os.environ.get("JAVA_HOME"):
        yield Path(os.environ["JAVA_HOME"])
    on_path = shutil.which("javac")
    if on_path is not None:
        yield Path(on_path).resolve().parents[1]
    yield from sorted(_JVM_FOLDER.glob("*"))


def java_version(home: Path) -> int:
    """Return a JDK's major version as its own `release` file tells it, 0 if it does not."""
    try:
        release = (home / "release").read_text(encoding="utf-8")
    except OSError:
        return 0
    found = re.search(r'^JAVA_VERSION="(\d+)', release, re.MULTILINE)
    return int(found[1]) if found else 0


def install(packages: Sequence[str], say: Say) -> None:
    """Install the first of these Debian packages that can be had; silent when none can, the caller looks again."""
    if shutil.which("apt-get") is None:
        return
    root = [] if os.geteuid() == 0 else ["sudo", "-n"]
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for is_updated in (False, True):
        if is_updated:
            _run([*root, "apt-get", "update", "-q"], _INSTALL_S, environment)
        for package in packages:
            say(f"installing {package} ...")
            if (
                _run(
                    [*root, "apt-get", "install", "-y", "-q", "--no-install-recommends", package],
                    _INSTALL_S,
                    environment,
                )[0]
                == 0
            ):
                return


def _run(command: Sequence[str], limit_s: float, environment: dict[str, str]) -> tuple[int, str]:
    """Run a program to its end; returns its code and all it said. A program that does not end is ended."""
    try:
        done = subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=limit_s,
            check=False,
        )
    except FileNotFoundError:
        return 127, f"{command[0]} does not exist"
    except subprocess.TimeoutExpired:
        return 124, f"{command[0]} did not end within {limit_s:.0f} s"
    return done.returncode, _COLOURS.sub("", done.stdout)
