"""The SQL server of the accounts: version, response time, and whether its settings suit the hub.

Knows no table; writes nothing. `accounts` checks that it answers and that the schema fits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sqlalchemy import Connection, Engine, text

from iothub.doctor.findings import Finding, State, timed
from iothub_tenants.accounts.servers import MYSQL

_NAME = "accounts"
_ASKED = 5  # the fastest of this many counts: the first ones are colder
_SLOW_S = 0.02  # each lookup of a device that is not cached takes a few of these
_CLOCK_S = 30.0  # times are the hub's own; a difference shows in other tools
_HEADROOM = 0.8
_OLDEST = {"mysql": (8, 0), "mariadb": (10, 5), "postgresql": (13, 0)}

_FACTS = {
    "mysql": "SELECT VERSION() AS version, @@character_set_database AS encoding, @@max_connections AS most, "
    "(SELECT COUNT(*) FROM information_schema.processlist) AS used, UNIX_TIMESTAMP(NOW(3)) AS now, "
    "@@innodb_flush_log_at_trx_commit AS durable",
    "postgresql": "SELECT current_setting('server_version') AS version, current_setting('server_encoding') AS encoding, "
    "current_setting('max_connections') AS most, (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend') AS used, "
    "extract(epoch FROM clock_timestamp()) AS now, current_setting('fsync') AS durable",
}


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts from the server. `is_durable`: a commit is on its disk before it is answered."""

    kind: str
    version: str
    encoding: str
    most_connections: int
    used_connections: int
    clock_s: float
    is_durable: bool


def check(engine: Engine, now_s: float, connections: int) -> Iterator[Finding]:
    """`now_s`: the local time; `connections`: maximum number that one hub opens."""
    with engine.connect() as connection:
        connection.execute(text("SELECT 1"))
        seconds = min(timed(lambda: connection.execute(text("SELECT 1")))[1] for _ in range(_ASKED))
        facts = _read(connection)
    yield _answer(facts, seconds)
    yield from remarks(facts, now_s, connections)


def _read(connection: Connection) -> Facts:
    name = connection.dialect.name
    row = connection.execute(text(_FACTS["mysql" if name in MYSQL else name])).mappings().one()
    version = str(row["version"])
    return Facts(
        kind="mariadb" if "MariaDB" in version else name,
        version=version,
        encoding=str(row["encoding"]),
        most_connections=int(str(row["most"])),
        used_connections=int(str(row["used"])),
        clock_s=float(str(row["now"])),
        is_durable=str(row["durable"]) in ("1", "on"),
    )


def _answer(facts: Facts, seconds: float) -> Finding:
    text = f"{facts.kind} {facts.version}, {facts.used_connections} of {facts.most_connections} connections in use"
    if seconds > _SLOW_S:
        return Finding(_NAME, State.WARN, f"{text}: slow", "check the network and the server's load", seconds)
    return Finding(_NAME, State.OK, text, seconds=seconds)


def remarks(facts: Facts, now_s: float, connections: int) -> Iterator[Finding]:
    """Return what is wrong with these facts."""
    oldest = _OLDEST.get(facts.kind, (0, 0))
    if _numbers(facts.version) < oldest:
        wanted = ".".join(map(str, oldest))
        yield _warning(f"version {facts.version} is older than {wanted}", "upgrade it; the hub is not tested with it")
    if not facts.encoding.lower().startswith("utf8") or facts.encoding.lower() == "utf8mb3":
        yield _warning(
            f"the database's character set is {facts.encoding}", "create the database with utf8mb4 (PostgreSQL: UTF8)"
        )
    if facts.used_connections + connections > _HEADROOM * facts.most_connections:
        yield _warning(
            f"{facts.used_connections} of {facts.most_connections} connections are in use, and one hub opens up to {connections}",
            "raise max_connections, or lower sql.connections",
        )
    if abs(facts.clock_s - now_s) > _CLOCK_S:
        yield _warning(
            f"its clock differs from the local one by {abs(facts.clock_s - now_s):.0f} s", "synchronise both with NTP"
        )
    if not facts.is_durable:
        setting = "fsync = on" if facts.kind == "postgresql" else "innodb_flush_log_at_trx_commit = 1"
        yield _warning("a crash of its machine may lose commits", f"set {setting}")


def _warning(what: str, advice: str) -> Finding:
    return Finding(_NAME, State.WARN, what, advice)


def _numbers(version: str) -> tuple[int, int]:
    major, _, rest = version.partition(".")
    minor = rest.partition(".")[0].partition(" ")[0]
    return (int(major) if major.isdecimal() else 0, int(minor) if minor.isdecimal() else 0)
