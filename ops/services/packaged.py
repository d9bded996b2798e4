"""The servers that come from the distribution's packages: Redis, MariaDB, PostgreSQL; private ones, never the packages' own services.

Knows no running process. MariaDB and PostgreSQL do not run as root: when we are root, they run as the users that their packages make.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import string
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ops.services.errors import ServicesError
from ops.services.places import OWN_USERS, ROOT, SQL_ACCOUNT, Places, Ports
from ops.services.probes import mariadb_answers, postgresql_answers, redis_answers
from ops.services.process import is_zombie
from ops.services.server import Habits, Server
from ops.services.tools import Say, install

_OPS = ROOT / "ops"
_PROGRAMS_S = 120.0
_VERSION_S = 10.0
_MARIADB_INSTALL = ("--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db")
_HBA = "# The hub's user, with its password, from this machine.\nhost all all 127.0.0.1/32 scram-sha-256\n"
# An order of words as on most servers, not that of bytes: what the hub compares must not depend on it.
_CREATE = f"CREATE DATABASE {SQL_ACCOUNT} TEMPLATE template0 LOCALE_PROVIDER icu ICU_LOCALE 'en'\n"


@dataclass(frozen=True, slots=True)
class Package:
    """One of them: its program, Debian's package of it, its port, and how its process is recognised and stopped."""

    program: str
    package: str
    port: Callable[[Ports], int]
    habits: Habits


# The file of settings is the mark: no other process has it among its arguments.
PACKAGED: Mapping[str, Package] = {
    "redis": Package("redis-server", "redis-server", lambda ports: ports.redis, Habits("{folder}/redis.conf")),
    "mariadb": Package(
        "mariadbd", "mariadb-server", lambda ports: ports.mariadb, Habits("--defaults-file={folder}/my.cnf")
    ),
    "postgresql": Package(
        "postgres",
        "postgresql",
        lambda ports: ports.postgresql,
        Habits("--config-file={folder}/postgresql.conf", signal.SIGINT),
    ),
}


def packaged(name: str, places: Places, ports: Ports, say: Say) -> Server:
    """Return one of them by its name; its package is installed when it is missing, this is Debian and we are root.

    Raises:
        ServicesError: It is missing, and not to be installed from here.
    """
    program = _program(name, say)
    return {"redis": _redis, "mariadb": _mariadb, "postgresql": _postgresql}[name](program, places, ports, say)


@cache
def version(name: str) -> str:
    """Return the version of an installed package's program, empty if it is not installed."""
    program = _found(PACKAGED[name].program)
    if program is None:
        return ""
    try:
        done = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=_VERSION_S, check=False)
    except subprocess.TimeoutExpired:
        return ""
    number = re.search(r"\b\d+\.\d+(\.\d+)?", done.stdout)
    return number[0] if number else ""


def _redis(program: str, places: Places, ports: Ports, _say: Say) -> Server:
    data = places.of("redis") / "data"
    return Server(
        name="redis",
        command=(program,),
        arguments=("--dir", str(data)),
        files={"redis.conf": _settings("redis/redis.conf", ports.redis)},
        ports=(ports.redis,),
        ask=lambda: redis_answers(ports.redis),
        prepare=lambda: data.mkdir(exist_ok=True),
    )


def _mariadb(program: str, places: Places, ports: Ports, say: Say) -> Server:
    folder, user = places.of("mariadb"), _user("mariadb")
    as_user = (f"--user={user}",) if user else ()
    beside = ("--socket=mysql.sock", "--pid-file=mysqld.pid")  # a relative one is not too long for a socket
    client = _beside(program, "mariadb")
    return Server(
        name="mariadb",
        command=(program,),
        arguments=(*as_user, f"--datadir={folder / 'data'}", *beside, f"--init-file={folder / 'init.sql'}"),
        files={
            "my.cnf": _settings("mariadb/my.cnf", ports.mariadb),
            "init.sql": (_OPS / "mariadb/init.sql").read_text(encoding="utf-8"),
        },
        ports=(ports.mariadb,),
        ask=lambda: mariadb_answers(client, ports.mariadb),
        prepare=lambda: _Data(folder, user, say).make(
            lambda half: _run(
                [_beside(program, "mariadb-install-db"), *_MARIADB_INSTALL, *as_user, f"--datadir={half}"]
            )
        ),
    )


def _postgresql(program: str, places: Places, ports: Ports, say: Say) -> Server:
    folder, user = places.of("postgresql"), _user("postgresql")
    client = _beside(program, "psql")
    lies = {"data_directory": "data", "hba_file": "pg_hba.conf", "ident_file": "data/pg_ident.conf"}
    at = "".join(f"{name} = '{folder / path}'\n" for name, path in lies.items())
    return Server(
        name="postgresql",
        command=(*_as_user(user), program),
        arguments=(),
        files={
            "postgresql.conf": _settings("postgresql/postgresql.conf", ports.postgresql) + at,
            "pg_hba.conf": _HBA,
            "password": SQL_ACCOUNT,
        },
        ports=(ports.postgresql,),
        ask=lambda: postgresql_answers(client, ports.postgresql),
        prepare=lambda: _prepare_postgresql(program, _Data(folder, user, say)),
    )


def _prepare_postgresql(program: str, data: _Data) -> None:
    data.make(lambda half: _init_postgresql(program, data.user, data.folder, half))
    noted = data.folder / "data/postmaster.pid"
    # A killed process that nobody has waited for yet still has its number, and PostgreSQL would take it for a running one.
    if noted.exists() and is_zombie(int(noted.read_text().split()[0])):
        noted.unlink()


def _init_postgresql(program: str, user: str | None, folder: Path, half: Path) -> None:
    made = ("--encoding=UTF8", "--locale=C.UTF-8", "--auth=scram-sha-256", f"--pwfile={folder / 'password'}")
    initdb = [_beside(program, "initdb"), f"--pgdata={half}", f"--username={SQL_ACCOUNT}", *made]
    _run([*_as_user(user), *initdb], folder)
    _run([*_as_user(user), program, "--single", "-D", str(half), "postgres"], folder, _CREATE)


@dataclass(frozen=True, slots=True)
class _Data:
    """A server's folder `data`, made whole or not at all, and given to its user."""

    folder: Path
    user: str | None
    say: Say

    def make(self, fill: Callable[[Path], None]) -> None:
        """See that it is there; `fill` puts into an empty folder what a first start needs."""
        self._open()
        data, half = self.folder / "data", self.folder / "data.half"
        if data.exists():
            return
        self.say(f"making {data} ...")
        shutil.rmtree(half, ignore_errors=True)
        half.mkdir(mode=0o700)
        if self.user:
            shutil.chown(half, self.user)
        fill(half)
        half.rename(data)

    def _open(self) -> None:
        """Let the server's user in, and read its settings, whatever our umask is."""
        if self.user:
            self.folder.parent.chmod(0o755)
            self.folder.chmod(0o755)
            for path in self.folder.iterdir():
                if path.is_file():
                    path.chmod(0o644)


def _settings(name: str, port: int) -> str:
    return string.Template((_OPS / name).read_text(encoding="utf-8")).substitute(port=port)


def _user(name: str) -> str | None:
    """Return the user that a server runs as, None for ours."""
    return OWN_USERS[name] if os.geteuid() == 0 else None


def _as_user(user: str | None) -> tuple[str, ...]:
    """Return what goes before a command so that its process is that user's; the process stays the same one."""
    return () if user is None else ("setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups", "--")


def _program(name: str, say: Say) -> str:
    wanted = PACKAGED[name]
    found = _found(wanted.program)
    if found is None:
        install((wanted.package,), say)
        version.cache_clear()
        found = _found(wanted.program)
    if found is None:
        raise ServicesError(
            f"{name} needs {wanted.program}, which is not installed. "
            f"Install it (Debian: apt-get install {wanted.package}), or start others only: python3 -m ops.services up hbase kafka"
        )
    return found


def _found(program: str) -> str | None:
    """Return the path of a program: on the PATH, where daemons are, or where Debian keeps PostgreSQL's versions."""
    newest_first = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: -_number(path.parent.name))
    path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", *map(str, newest_first)])
    return shutil.which(program, path=path)


def _number(name: str) -> int:
    return int(name) if name.isdecimal() else 0


def _beside(program: str, name: str) -> str:
    """Return another program of the same package."""
    beside = Path(program).parent / name
    found = str(beside) if beside.exists() else _found(name)
    if found is None:
        raise ServicesError(f"{program} exists, but {name} of the same package is missing; reinstall the package")
    return found


def _run(command: Sequence[str], folder: Path | None = None, given: str = "") -> None:
    """Run a program to its end. Raises ServicesError, with its last words."""
    try:
        done = subprocess.run(
            command, cwd=folder, input=given, capture_output=True, text=True, timeout=_PROGRAMS_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise ServicesError(f"{command[0]} did not end within {_PROGRAMS_S:.0f} s") from None
    if done.returncode != 0:
        raise ServicesError(f"{' '.join(command)} failed; its output:\n{(done.stdout + done.stderr).strip()[-2000:]}")
