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

    Refuses a directory that is initialised already (exit code 4). Safe to repeat after a crash.

    Example:
      iothub --data-dir /var/lib/iothub init
    """
    from iothub_tenants.accounts.initial import init_store

    app.load()  # a mistake in the environment or in --config is found before anything is written
    app.data_dir.require_fresh()
    app.data_dir.prepare()
    lock = app.data_dir.lock("iothub init")
    try:
        app.data_dir.require_fresh()
        init_store(app.accounts_url(), pepper=app.data_dir.pepper(app.loaded.config.auth.pepper_file)).close()
        app.data_dir.finish()
    finally:
        lock.release()
    path = app.data_dir.path
    app.done(
        f"initialised {path}\nnext: iothub tenant create NAME",
        {"name": "init", "data_dir": str(path), "config_file": str(app.data_dir.config_file)},
    )
