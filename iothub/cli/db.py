"""`iothub db`: the schema of the accounts database.

Knows no table: `iothub_migrations` does.
"""

from __future__ import annotations

from pathlib import Path

import click

from iothub.base.errors import ConfigError
from iothub.cli import accounts
from iothub.cli.app import App, noun, verb
from iothub.cli.files import NamedPath, cannot_be_read
from iothub.cli.progress import Progress
from iothub.hub.stores.installation import installation_of
from iothub_migrations import schema
from iothub_tenants.accounts.copying import How, copy_accounts
from iothub_tenants.accounts.database import file_of, open_engine, read_url
from iothub_tenants.accounts.store import create_schema, errors_translated

command = noun("db", "The accounts database: tenants, devices, rules, plans, limits.")

_HOW = {
    How.AT_ONCE: "copied",
    How.RESUMED: "completed an earlier copy",
    How.BEGUN_ANEW: "copied from the beginning, because the accounts changed after an earlier copy was interrupted",
}


@verb(command, "status")
def status(app: App) -> None:
    """Show the database's schema version and the program's; exit code 4 when the database's is newer than this program can use.

    Example:
      iothub --data-dir ./hub db status
    """
    app.require_initialised()
    engine = open_engine(app.accounts_url())
    try:
        with errors_translated(file_of(app.accounts_url())):
            state, version = schema.check(engine), schema.version_of(engine)
    finally:
        engine.dispose()
    is_known = state in (schema.SchemaState.CURRENT, schema.SchemaState.NEWER)
    app.record(
        {
            "name": "accounts",
            "state": state.value,
            "schema_version": version,
            "program_schema_version": schema.SCHEMA_VERSION,
            "installation": installation_of(app.loaded.config, app.data_dir).id if is_known else None,
        }
    )


@verb(command, "upgrade")
def upgrade(app: App) -> None:
    """Upgrade the schema for this program. Stop the hub first. Safe to repeat.

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


@verb(command, "copy")
@click.option(
    "--to-url-file",
    type=NamedPath(),
    required=True,
    metavar="FILE",
    help="File with the SQLAlchemy URL of the other database, as for sql.url_file.",
)
def copy(app: App, to_url_file: Path) -> None:
    """Copy the accounts to another database, such as from SQLite to MariaDB: rows, ids and counters; then compare both.

    Stop every hub on these accounts first and run no other command meanwhile: a change during the copy makes it fail. The other database must
    exist and be empty; the copy creates its tables. To continue an interrupted copy, run the same command again; the other database cannot be
    used until the copy is complete. The accounts here do not change. Afterwards set sql.url_file of every hub to FILE; data directory and
    pepper stay the same.

    Example:
      iothub --data-dir ./hub db copy --to-url-file ./mariadb.url
    """
    source = app.accounts_url()
    try:
        target = read_url(to_url_file, str(to_url_file))
    except OSError as error:
        raise cannot_be_read(to_url_file, error) from None
    store = app.store()
    if source == target:
        raise ConfigError(f"{to_url_file}: is the accounts database in use; expected another one")
    lock = app.data_dir.lock("iothub db copy")
    try:
        with Progress("rows copied") as copying, Progress("rows compared on both sides") as comparing:

            def begun(done: int) -> None:
                comparing.end()
                copying.begin(done)

            def compared(done: int, of: int) -> None:
                if done:
                    comparing(done, of)
                else:
                    copying.end()
                    comparing.begin(0)

            copied = copy_accounts(
                store.url, target, copying, on_begin=begun, on_compared=compared, named=str(to_url_file)
            )
    finally:
        lock.release()
    for name, count in copied.rows.items():
        app.say(f"{name}: {count} rows, equal on both sides")
    app.done(
        f"{_HOW[copied.how]}: {sum(copied.rows.values())} rows; next: set sql.url_file to {to_url_file.absolute()} and start the hub",
        {
            "name": "accounts",
            "rows": copied.rows,
            "was_resumed": copied.how is How.RESUMED,
            "was_begun_anew": copied.how is How.BEGUN_ANEW,
            "installation": copied.installation,
        },
    )


@verb(command, "adopt")
@click.argument("installation")
def adopt(app: App, installation: str) -> None:
    """Give these accounts the id of INSTALLATION, which the refused start names. Stop the hub first.

    Every accounts database has an id, made by `init` or `db upgrade`, and every store on a server belongs to one id. Do this only for
    accounts that were made together with the content of the stores, such as a restored backup from before schema version 6. With other
    accounts your tenants get the sessions and messages of strangers, because all accounts number their tenants from 1.

    The files of the data directory take the id too, if a hub has used them with these accounts.

    Example:
      iothub --data-dir ./hub db adopt 4f0c2b6f2f9be04d7c5b0a6d3d1c9e88
    """
    store = app.store()
    lock = app.data_dir.lock("iothub db adopt")
    try:
        before = accounts.installations.adopt(store, installation)
        if app.data_dir.read_installation() == before:  # the files beside are of these accounts, and stay theirs
            app.data_dir.write_installation(installation)
    finally:
        lock.release()
    app.done(
        f"these accounts now belong to installation {installation}; before: {before}",
        {"name": "accounts", "before": before, "installation": installation},
    )
