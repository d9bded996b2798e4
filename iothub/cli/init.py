"""`iothub init`: make a data directory that `iothub serve` can use.

Knows the order only: directory and pepper, accounts with their plans, last the configuration file, which makes it count.
"""

from __future__ import annotations

import click

from iothub.cli.app import App, Command


@click.command("init", cls=Command)
@click.pass_obj
def command(app: App) -> None:
    """Create the data directory: keys, accounts with the plans `standard` and `unlimited`, a configuration file.

    Refuses a directory that is initialised already (exit code 4). Safe to repeat after a crash. With accounts elsewhere (sql.url_file) the first
    hub's `init` makes them and the file of auth.pepper_file, every further one needs that file and makes neither.

    Example:
      iothub --data-dir /var/lib/iothub init
    """
    from iothub_tenants.accounts.initial import init_store
    from iothub_tenants.accounts.store import has_schema

    settings = app.loaded.config  # a mistake in the environment or in --config is found before anything is written
    pepper = settings.auth.pepper_file
    app.data_dir.require_fresh(pepper)
    url = app.accounts_url()
    app.data_dir.prepare(pepper, has_accounts=settings.sql.url_file is not None and has_schema(url))
    lock = app.data_dir.lock("iothub init")
    try:
        app.data_dir.require_fresh(pepper)
        init_store(url, pepper=app.data_dir.pepper(pepper)).close()
        app.data_dir.finish()
    finally:
        lock.release()
    path = app.data_dir.path
    app.done(
        f"initialised {path}\nnext: iothub tenant create NAME",
        {"name": "init", "data_dir": str(path), "config_file": str(app.data_dir.config_file)},
    )
