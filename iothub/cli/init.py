"""`iothub init`: make a data directory that `iothub serve` can use.

Knows the order only: a configuration file for the chosen profile, directory and pepper, accounts with their plans, last the note that all is made.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from iothub.base.errors import BackendError, ConfigError, UnavailableError
from iothub.cli.app import App, Command
from iothub.config.loader import needs_on_hbase
from iothub.config.profiles import PROFILES
from iothub.config.sections import Config


@click.command("init", cls=Command)
@click.option(
    "--profile",
    type=click.Choice(list(PROFILES)),
    help="Which configuration file to write. Default: embedded, if there is no file.",
)
@click.pass_obj
def command(app: App, profile: str | None) -> None:
    """Create the data directory: a commented configuration file, keys, and accounts with the plans `standard` and `unlimited`.

    Profiles:
      embedded       one hub, no servers: everything in SQLite files
      single-server  one hub with Kafka (streams) and Redis (account cache)
      cluster        several hubs: accounts on a SQL server, HBase, Kafka, Redis

    An existing configuration file is used and never overwritten. With profile cluster, `init` writes the files only: put in the addresses of your
    servers, check with `iothub doctor` that they answer, then run `iothub init` again. With accounts on a server, the first hub's `init` creates
    them and the pepper (auth.pepper_file); copy that file to every other hub.

    Refuses a directory that is initialised already (exit code 4). Safe to repeat after a crash.

    Examples:
      iothub --data-dir /var/lib/iothub init
      iothub --data-dir /var/lib/iothub init --profile single-server
    """
    if profile is not None and _is_to_be_edited(app, profile):
        _print_what_to_edit(app, profile)
        return
    origin = f" as profile {profile}" if profile else f" with the settings of {app.data_dir.config_file}"
    kept = origin if app.data_dir.has_config else ""
    settings = app.loaded.config  # a mistake in the environment or in the file is found before anything is made
    has_accounts = _make(app, settings)
    path = app.data_dir.path
    app.done(
        f"initialised {path}{kept}\n{_next(settings, has_accounts=has_accounts)}",
        {
            "name": "init",
            "data_dir": str(path),
            "config_file": str(app.data_dir.config_file),
            "is_initialised": True,
        },
    )


def _is_to_be_edited(app: App, profile: str) -> bool:
    """Write the profile's files; say whether they must be edited before accounts can be made."""
    if app.config_file is not None:
        raise ConfigError(
            "expected --profile (writes a new configuration file) or --config (uses an existing one), got both"
        )
    is_url_new = app.data_dir.write_profile(PROFILES[profile])
    return is_url_new and app.loaded.config.sql.url_file == app.data_dir.url_file


def _print_what_to_edit(app: App, profile: str) -> None:
    config, url = app.data_dir.config_file, app.data_dir.url_file
    app.done(
        f"wrote {config} and {url}: profile {profile}; the accounts do not exist yet\n"
        f"next: put the addresses of your servers into both files\n"
        "then: check with `iothub doctor` that they answer, and create the accounts with `iothub init`",
        {
            "name": "init",
            "data_dir": str(app.data_dir.path),
            "config_file": str(config),
            "url_file": str(url),
            "is_initialised": False,
        },
    )


def _make(app: App, settings: Config) -> bool:
    """Create what is missing. Say whether there were accounts on a server before, which another hub's `init` has made."""
    from iothub_tenants.accounts.initial import init_store
    from iothub_tenants.accounts.store import has_schema

    pepper = settings.auth.pepper_file
    app.data_dir.require_fresh(pepper)
    url = app.accounts_url()
    with _with_remedy(settings.sql.url_file):
        has_accounts = settings.sql.url_file is not None and has_schema(url)
    app.data_dir.prepare(pepper, has_accounts=has_accounts)
    lock = app.data_dir.lock("iothub init")
    try:
        app.data_dir.require_fresh(pepper)
        with _with_remedy(settings.sql.url_file):
            init_store(url, pepper=app.data_dir.pepper(pepper)).close()
        app.data_dir.finish()
        return has_accounts
    finally:
        lock.release()


@contextmanager
def _with_remedy(url_file: Path | None) -> Iterator[None]:
    """Add to an error of the SQL server what to do about it."""
    try:
        yield
    except (BackendError, ConfigError) as error:
        if url_file is None:
            raise
        kind = ConfigError if isinstance(error, ConfigError) else UnavailableError
        raise kind(f"{error}; correct {url_file} or the server, then run `iothub init` again") from error


def _next(settings: Config, *, has_accounts: bool) -> str:
    """Say what to do next with the new directory."""
    if has_accounts:
        return "next: iothub doctor\nthen: `iothub serve`; the accounts and tables that another hub has made are used as they are"
    if needs_on_hbase(settings):
        return "next: iothub hbase create-tables\n(once for all hubs with these settings); then: `iothub tenant create NAME`"
    if settings.kafka.brokers or settings.redis.addresses:
        return "next: iothub doctor\nthen: `iothub tenant create NAME`"
    return "next: iothub tenant create NAME"
