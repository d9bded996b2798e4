"""`iothub db`: the schema of the accounts database.

Knows no table: `iothub_migrations` does.
"""

from __future__ import annotations

from iothub.cli.app import App, noun, verb
from iothub_migrations import schema
from iothub_tenants.accounts.database import open_engine
from iothub_tenants.accounts.store import create_schema, errors_translated

command = noun("db", "The accounts database: tenants, devices, rules, plans, limits.")


@verb(command, "status")
def status(app: App) -> None:
    """Say whether the schema fits this program; a newer one that it cannot use gives exit code 4.

    Example:
      iothub --data-dir ./hub db status
    """
    app.require_initialised()
    engine = open_engine(app.accounts_url())
    try:
        with errors_translated():
            state = schema.check(engine)
    finally:
        engine.dispose()
    app.record({"name": "accounts", "state": state.value, "schema_version": schema.SCHEMA_VERSION})


@verb(command, "upgrade")
def upgrade(app: App) -> None:
    """Bring the schema up to date with this program; the hub must not run. Safe to repeat.

    Example:
      iothub --data-dir ./hub db upgrade
    """
    app.require_initialised()
    lock = app.data_dir.lock("iothub db upgrade")
    try:
        before = create_schema(app.accounts_url())
    finally:
        lock.release()
    is_done = before in (schema.SchemaState.FRESH, schema.SchemaState.OLD)
    text = f"upgraded to schema version {schema.SCHEMA_VERSION}" if is_done else "nothing to do"
    app.done(text, {"name": "accounts", "before": before.value, "schema_version": schema.SCHEMA_VERSION})
