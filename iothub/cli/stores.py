"""The embedded stores of a data directory, for the command line: to read beside a running hub, or to work in while none runs.

Knows no noun. Beside a hub the files are opened read-only and never repaired: that is the hub's. Working in them takes the lock.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import cast

from iothub.cli import output
from iothub.clock import SystemClock
from iothub.datadir import DataDir
from iothub.errors import ConflictError, UnavailableError
from iothub_services.queues import schema as queue_schema
from iothub_services.queues.port import QueueStore
from iothub_services.queues.sqlite import SqliteQueues
from iothub_services.retained.port import RetainedStore
from iothub_services.retained.sqlite import SCHEMA as RETAINED_SCHEMA
from iothub_services.retained.sqlite import SqliteRetained
from iothub_services.sqlite.database import Database, Schema, connect, open_database


class ReadOnlyDatabase(Database):
    """A file that another process may be writing: every statement sees what is committed, nothing is changed."""

    def __init__(self, path: Path, schema: Schema) -> None:
        self.path = path
        self.schema = schema
        self.before_commit = []
        self.after_commit = []
        self.on_rollback = []
        self.writer = self.reader = connect(path, is_read_only=True)
        version = int(self.reader.execute("PRAGMA user_version").fetchone()[0])
        if version != schema.version:
            self.close()
            raise ConflictError(
                f"{path.name} has schema version {version}, this program knows {schema.version}: "
                "use the program that the hub runs"
            )


class Stores:
    """Open stores."""

    def __init__(self, queues: QueueStore, retained: RetainedStore) -> None:
        self.queues = queues
        self.retained = retained

    def drop_tenant(self, tenant_id: int) -> None:
        """Remove everything of a tenant. Idempotent."""
        self.queues.drop_tenant(tenant_id)
        self.retained.drop_tenant(tenant_id)


@contextmanager
def working_alone(data_dir: DataDir, command: str) -> Iterator[Stores | None]:
    """Take the data directory and open its stores for writing; None when a hub holds it."""
    try:
        lock = data_dir.lock(command)
    except ConflictError:
        yield None
        return
    try:
        with ExitStack() as stack:
            yield Stores(
                cast(
                    "QueueStore",
                    stack.enter_context(closing(SqliteQueues(_open(data_dir.queues, queue_schema.SCHEMA)))),
                ),
                cast(
                    "RetainedStore",
                    stack.enter_context(closing(SqliteRetained(_open(data_dir.retained, RETAINED_SCHEMA)))),
                ),
            )
    finally:
        lock.release()


@contextmanager
def reading_retained(data_dir: DataDir) -> Iterator[RetainedStore | None]:
    """Open the retained messages to read; None when no hub has made the file yet."""
    with _reading(data_dir.retained, RETAINED_SCHEMA) as database:
        yield cast("RetainedStore", SqliteRetained(database)) if database is not None else None


@contextmanager
def reading_queues(data_dir: DataDir) -> Iterator[QueueStore | None]:
    """Open the virtual queues to read; None when no hub has made the file yet."""
    with _reading(data_dir.queues, queue_schema.SCHEMA) as database:
        yield cast("QueueStore", SqliteQueues(database)) if database is not None else None


@contextmanager
def _reading(path: Path, schema: Schema) -> Iterator[Database | None]:
    if not path.exists():
        yield None
        return
    try:
        with closing(ReadOnlyDatabase(path, schema)) as database:
            yield database
    except sqlite3.Error as error:
        raise UnavailableError(f"{path.name}: cannot be read: {error}") from None


def _open(path: Path, schema: Schema) -> Database:
    return open_database(path, schema, SystemClock(), _report)


def _report(name: str, text: str) -> None:
    if text:
        output.say(f"iothub: warning: {name}: {text}")
