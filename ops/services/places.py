"""Where the real servers lie and listen: ports, folders, the versions that the poms pin.

Knows no process. Everything that is written lies below one folder, which git ignores.
"""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass
from pathlib import Path

from ops.services.errors import ServicesError

ROOT = Path(__file__).resolve().parents[2]
HOST = "127.0.0.1"
FOLDER_VARIABLE = "IOTHUB_SERVICES_DIR"
SHIFT_VARIABLE = "IOTHUB_SERVICES_SHIFT"
PORTS_BELOW = 32768  # from here on the kernel gives ports to outgoing connections
SQL_ACCOUNT = "iothub"  # user, password and database of MariaDB and PostgreSQL, which only this machine reaches
OWN_USERS = {"mariadb": "mysql", "postgresql": "postgres"}  # they refuse root; the packages make these users
_OUTSIDE = Path("/var/tmp")  # noqa: S108  a folder of root's own is made there
_STEP = 10  # sets of servers whose shifts differ share no port
_MOST_SHIFT = 10_000


@dataclass(frozen=True, slots=True)
class Ports:
    """Every port, all on loopback. `shift` moves them together, for a second set of servers."""

    shift: int = 0

    def __post_init__(self) -> None:
        if self.shift % _STEP or not 0 <= self.shift <= _MOST_SHIFT:
            raise ServicesError(
                f"ports can be shifted by 0, {_STEP}, {2 * _STEP} ... {_MOST_SHIFT}, not by {self.shift}"
            )

    @property
    def kafka(self) -> int:
        return 19092 + self.shift

    @property
    def kafka_controller(self) -> int:
        return 19093 + self.shift

    @property
    def thrift(self) -> int:
        return 19090 + self.shift

    @property
    def second_thrift(self) -> int:
        return 19091 + self.shift

    @property
    def zookeeper(self) -> int:
        return 19094 + self.shift

    @property
    def hbase_master(self) -> int:
        return 19095 + self.shift

    @property
    def hbase_regionserver(self) -> int:
        return 19096 + self.shift

    @property
    def redis(self) -> int:
        return 19097 + self.shift

    @property
    def mariadb(self) -> int:
        return 19098 + self.shift

    @property
    def postgresql(self) -> int:
        return 19099 + self.shift


@dataclass(frozen=True, slots=True)
class Places:
    """The folder of one set of servers, and what lies where in it."""

    folder: Path

    @property
    def lock(self) -> Path:
        return self.folder / "lock"

    @property
    def shift_file(self) -> Path:
        return self.folder / "shift"

    @property
    def libraries(self) -> Path:
        return self.folder / "lib"

    @property
    def hub_settings(self) -> Path:
        return self.folder / "iothub.toml"

    def of(self, server: str) -> Path:
        """Return the folder of one server: its data, its configuration, its log, its process id.

        Below `folder`; but for a server that runs as a user who may not enter it, below /var/tmp.
        """
        if server in OWN_USERS and os.geteuid() == 0 and not _is_open(self.folder):
            name = hashlib.sha256(str(self.folder).encode()).hexdigest()[:12]
            return _OUTSIDE / f"iothub-services-{name}" / server
        return self.folder / server

    def shift(self) -> int:
        """Return the shift of the ports that were used last, 0 at first."""
        try:
            return int(self.shift_file.read_text())
        except (FileNotFoundError, ValueError):
            return 0


def _is_open(folder: Path) -> bool:
    """Tell whether every user may enter a folder. What is not there yet will be made so."""
    return all(each.stat().st_mode & 0o001 for each in (folder, *folder.parents) if each.exists())


def places_here() -> Places:
    """Return `.services` of the checkout, or what IOTHUB_SERVICES_DIR names."""
    return Places(Path(os.environ.get(FOLDER_VARIABLE) or ROOT / ".services").resolve())


def ports_here(places: Places) -> Ports:
    """Return the ports that IOTHUB_SERVICES_SHIFT names, otherwise those that were used last."""
    given = os.environ.get(SHIFT_VARIABLE, "")
    if not given:
        return Ports(places.shift())
    if not given.isdecimal():
        raise ServicesError(f"{SHIFT_VARIABLE} must be a whole number such as 100, not {given!r}")
    return Ports(int(given))


def pinned(pom: Path, name: str) -> str:
    """Return one `<properties>` entry of a pom, such as `kafka.version`."""
    found = re.search(rf"<{re.escape(name)}>([^<]+)</", pom.read_text(encoding="utf-8"))
    if found is None:
        raise ServicesError(f"{pom}: expected a property {name}")
    return found[1]


def pom(server: str) -> Path:
    """Return the pom that pins what a server is made of."""
    return ROOT / "ops" / server / "pom.xml"
