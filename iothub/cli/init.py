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
    help="Which configuration file to write. Default: embedded, unless there is one.",
)
@click.pass_obj
def command(app: App, profile: str | None) -> None:
    """Create the data directory: a commented configuration file, keys, accounts with the plans `standard` and `unlimited`.

    Profiles:
      embedded       one hub, no server: everything in SQLite files
      single-server  one hub with Kafka (streams) and Redis (cache of accounts) beside it
      cluster        several hubs: accounts on a SQL server, HBase, Kafka, Redis

    A configuration file that is there is used as it is, never overwritten. Profile cluster only writes files: put your addresses into them, see by
    `iothub doctor` what answers, then run `iothub init` again. Where accounts are on a server the first hub's `init` makes them and the pepper
    (auth.pepper_file); every further hub needs a copy of that file.

    Refuses a directory that is initialised already (exit code 4). Safe to repeat after a crash.

    Examples:
      iothub --data-dir /var/lib/iothub init
      iothub --data-dir /var/lib/iothub init --profile single-server
    """
    if profile is not None and _is_to_be_edited(app, profile):
        _tell_what_to_edit(app, profile)
        return
    origin = f" as profile {profile}" if profile else f" with the settings of {app.data_dir.config_file}"
    kept = origin if app.data_dir.has_config else ""
    settings = app.loaded.config  # a mistake in the environment or in the file is found before anything is made
    _make(app, settings)
    path = app.data_dir.path
    app.done(
        f"initialised {path}{kept}\n{_next(settings)}",
        {
            "name": "init",
            "data_dir": str(path),
            "config_file": str(app.data_dir.config_file),
            "is_initialised": True,
        },
    )


def _is_to_be_edited(app: App, profile: str) -> bool:
    """Write the profile's files; say whether they need the operator's hand before accounts can be made."""
    if app.config_file is not None:
        raise ConfigError(
            "--profile writes a configuration, and --config names one: expected one of them; with --config the profile is what that file says"
        )
    is_url_new = app.data_dir.write_profile(PROFILES[profile])
    return is_url_new and app.loaded.config.sql.url_file == app.data_dir.url_file


def _tell_what_to_edit(app: App, profile: str) -> None:
    config, url = app.data_dir.config_file, app.data_dir.url_file
    app.done(
        f"wrote {config} and {url}: profile {profile}; no accounts yet\n"
        f"next: put the addresses of your servers into both files\n"
        "then: `iothub doctor` says which of them answer, `iothub init` makes the accounts",
        {
            "name": "init",
            "data_dir": str(app.data_dir.path),
            "config_file": str(config),
            "url_file": str(url),
            "is_initialised": False,
        },
    )


def _make(app: App, settings: Config) -> None:
    """Make what is missing."""
    from iothub_tenants.accounts.initial import init_store
    from iothub_tenants.accounts.store import has_schema

    pepper = settings.auth.pepper_file
    app.data_dir.require_fresh(pepper)
    url = app.accounts_url()
    with _told_where(settings.sql.url_file):
        has_accounts = settings.sql.url_file is not None and has_schema(url)
    app.data_dir.prepare(pepper, has_accounts=has_accounts)
    lock = app.data_dir.lock("iothub init")
    try:
        app.data_dir.require_fresh(pepper)
        with _told_where(settings.sql.url_file):
            init_store(url, pepper=app.data_dir.pepper(pepper)).close()
        app.data_dir.finish()
    finally:
        lock.release()


@contextmanager
def _told_where(url_file: Path | None) -> Iterator[None]:
    """Add to a SQL server's error what to do about it."""
    try:
        yield
    except (BackendError, ConfigError) as error:
        if url_file is None:
            raise
        kind = ConfigError if isinstance(error, ConfigError) else UnavailableError
        raise kind(f"{error}; the file is {url_file}; then run `iothub init` again") from error


def _next(settings: Config) -> str:
    """Say what to do with a directory that was just made."""
    if needs_on_hbase(settings):
        return "next: iothub hbase create-tables\n(once for all hubs with these settings); then: `iothub tenant create NAME`"
    if settings.kafka.brokers or settings.redis.addresses:
        return "next: iothub doctor\nthen: `iothub tenant create NAME`"
    return "next: iothub tenant create NAME"
