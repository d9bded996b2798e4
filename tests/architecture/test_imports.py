"""Who may import what: the layers of setup.cfg, and each third-party library only where its name stands here."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.tree import ROOT, imports, modules

# Library -> the modules, or whole packages (ending in a dot), that may import it.
ALLOWED = {
    "sqlalchemy": ("iothub.doctor.sql", "iothub_tenants.", "iothub_migrations.", "iothub_spark.stores.accounts"),
    "psycopg": ("iothub_tenants.accounts.postgresql",),
    "pyspark": ("iothub_spark.",),
    "py4j": ("iothub_spark.failures",),  # pyspark brings it
    "pyarrow": ("iothub_spark.sources.", "iothub_spark.sinks.", "iothub_spark.transforms."),
    "happybase": ("iothub_spark.stores.rows_hbase",),
    "Hbase_thrift": ("iothub_spark.stores.rows_hbase",),  # happybase makes it
    "thriftpy2": ("iothub_spark.stores.rows_hbase",),
    "matplotlib": ("iothub_spark.reports.plots",),
    "alembic": ("iothub_migrations.",),
    "prometheus_client": ("iothub_services.metrics.exposition",),
    "h11": ("iothub.net.", "iothub.rest.timed_http", "iothub_services.webhooks.sending"),
    "msgpack": ("iothub.peers.frames", "iothub_services.store_process.frames"),
    "yaml": ("iothub.base.documents",),
    "kafka": (
        "iothub_services.events.kafka.log",
        "iothub_services.events.kafka.cluster",
        "iothub_services.events.kafka.connections",
        "iothub_services.events.kafka.metadata",
        "iothub_services.events.kafka.reader",
        "iothub_services.events.kafka.topics",
        "iothub_services.events.kafka.writer",
        "iothub_services.streams.kafka.batch",
        "iothub_services.streams.kafka.receiver",
        "iothub_services.streams.kafka.sender",
        "iothub_services.streams.kafka.topics",
        "iothub_spark.stores.log_kafka",
    ),
    "redis": ("iothub_services.redis.wire",),
    "hiredis": ("iothub_services.redis.wire",),
    "argon2": ("iothub_services.auth.secrets",),
    "cryptography": (
        "iothub.cli.cert",
        "iothub.config.check",
        "iothub.net.tls",
        "iothub.peers.certificates",
        "iothub_services.metrics.probes",
        "iothub_services.auth.token_keys",
        "iothub.testing.certificates",
    ),
    "jwt": ("iothub_services.auth.tokens", "iothub_services.auth.token_keys", "iothub.rest.oidc_provider"),
    "click": ("iothub.cli.",),
    "fastapi": ("iothub.rest.", "iothub.dashboard."),
    "starlette": ("iothub.rest.", "iothub.dashboard."),  # fastapi stands on it
    "nicegui": ("iothub.dashboard.",),
    "httpx": ("iothub.dashboard.",),
    "anyio": ("iothub.rest.app",),
    "pydantic": ("iothub.rest.",),
    "uvicorn": ("iothub.rest.serve", "iothub.rest.timed_http"),
    "structlog": ("iothub.base.log", "iothub.hub.twisted_log"),
    "hypothesis": ("iothub.testing.",),
    "pytest": ("iothub.testing.",),
    "wsproto": ("iothub.testing.",),
    "twisted": (
        "iothub.net.",
        "iothub.peers.commands",
        "iothub.peers.dialing",
        "iothub.hub.",
        "iothub_services.",
        "iothub_tenants.",
        "iothub.testing.",
    ),
    "sqlite3": (
        "iothub_services.",
        "iothub_tenants.accounts.database",
        "iothub_migrations.",
        "iothub.cli.",
        "iothub_spark.stores.",
    ),
}
PLAIN = ("iothub.mqtt", "iothub.engine", "iothub.records")  # standard library and each other; see the contracts
GROUND = (
    *PLAIN,
    "iothub.base.errors",
    "iothub.base.clock",
    "iothub.base.ids",
    "iothub.base.reasons",
    "iothub.base.units",
    "iothub.base.values",
)


def _is_allowed(module: str, places: tuple[str, ...]) -> bool:
    return any(module == place or (place.endswith(".") and f"{module}.".startswith(place)) for place in places)


@pytest.mark.parametrize("library", sorted(ALLOWED))
def test_library_is_imported_only_where_it_may_be(library: str) -> None:
    """A driver belongs to the module that says so in its name."""
    users = {name for name, path in modules().items() if _uses(path, library)}

    assert sorted(name for name in users if not _is_allowed(name, ALLOWED[library])) == []


def test_every_third_party_library_is_on_the_list() -> None:
    """A new library is a decision, made here."""
    ours = {name.partition(".")[0] for name in modules()}
    known = set(sys.stdlib_module_names) | ours | set(ALLOWED) | {"zope", "psutil"}
    tops = {line.partition(".")[0] for path in modules().values() for line in imports(path)}

    assert sorted(tops - known) == []


@pytest.mark.parametrize("package", PLAIN)
def test_codec_engine_and_records_need_only_the_standard_library(package: str) -> None:
    """No framework, no driver: bytes in, bytes out."""
    foreign = {
        (name, line)
        for name, path in modules().items()
        if name == package or name.startswith(f"{package}.")
        for line in imports(path)
        if line.partition(".")[0] not in sys.stdlib_module_names and not line.startswith(GROUND)
    }

    assert sorted(foreign) == []


def test_records_import_nothing_of_the_hub_but_plain_modules_of_base_and_themselves() -> None:
    """Spark imports only this package."""
    plain = ("iothub.base.errors", "iothub.base.reasons", "iothub.base.units", "iothub.base.values")
    lines = {
        line
        for name, path in modules().items()
        if name.startswith("iothub.records")
        for line in imports(path)
        if line.startswith("iothub") and not line.startswith(("iothub.records", *plain))
    }

    assert lines <= {"iothub"}


def test_import_contracts_hold() -> None:
    """Imports only point down; what import-linter says is what the architecture page draws."""
    command = Path(sys.executable).parent / "lint-imports"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [str(command), "--config", "setup.cfg", "--no-cache"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr


def _uses(path: Path, library: str) -> bool:
    return any(line == library or line.startswith(f"{library}.") for line in imports(path))


@pytest.mark.parametrize(
    ("process", "left_out"),
    [
        (
            "iothub.hub.workers.supervisor",
            ("iothub.hub.hub_process", "sqlalchemy", "cryptography", "prometheus_client"),
        ),
        ("iothub.hub.workers.store_process", ("iothub.hub.hub_process", "sqlalchemy", "cryptography")),
        ("iothub.hub.hub_process", ("cryptography", "iothub.rest", "kafka", "redis")),
    ],
)
def test_process_loads_nothing_of_what_another_one_does(process: str, left_out: tuple[str, ...]) -> None:
    """Loading is most of the time that a start takes, and the processes of a hub start one after the other."""
    program = (
        f"import sys, iothub.cli.main, iothub.cli.serve_child, iothub.hub.serve, {process}\n"
        f"print(*sorted(set({left_out!r}).intersection(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)

    assert done.stdout.split() == []
