"""`iothub admin`: the REST API, and the users and keys that may use it. Keys are on the accounts store, whether or not anything runs.

Knows no HTTP: `iothub.rest` is loaded when it is to be served.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from iothub.base.errors import ConfigError, IotHubError
from iothub.cli import account_verbs, accounts, admin_user, output
from iothub.cli.app import SET, App, destroying_verb, noun, verb
from iothub.cli.numbers import WholeNumber
from iothub.cli.paging import Page, paged
from iothub_tenants.accounts.plain import plain

if TYPE_CHECKING:
    from iothub.cli.local_hub import Answer, LocalHub
    from iothub.config.datadir import DataDir
    from iothub.records.admin_commands import Json, Verb
    from iothub.rest.front import MakePages

command = noun("admin", "Serve the REST API, and manage the users and keys that may use it.")
key = noun("key", "Keys of the REST API: who may do what, for the whole platform or for one tenant.")
command.add_command(key)
command.add_command(admin_user.command)

ROLES = ("platform-admin", "operator", "viewer", "tenant-admin", "tenant-viewer", "scrape")
_LOOPBACK = ("127.0.0.1", "::1", "localhost")
COLUMNS = ("name", "role", "tenant", "prefix", "is_enabled", "created", "last_used")


@verb(command, "serve")
@click.option("--port", type=WholeNumber(0, 65535), help="0: any free one. Default: the setting admin.port, 8081.")
@click.option("--bind", help="The address to listen on. Default: the setting admin.bind, 127.0.0.1.")
@click.option("--of-hub", "hub_pid", type=int, hidden=True, help="The process id of the hub that starts it.")
@SET
def serve(app: App, port: int | None, bind: str | None, hub_pid: int | None, flags: tuple[str, ...]) -> None:
    """Serve the REST API in the foreground, under /api/v1, and the dashboard at /.

    It needs the extra `admin`; SIGTERM or Ctrl-C stops it (exit code 0).

    `iothub serve` starts it by itself (settings of the section `admin`); by hand it is for accounts without a hub, or another port.

    It is a process of its own beside the hub: it works on the accounts of this data directory, and asks the hub that runs here for sessions,
    queues, retained messages and status. Without a hub these answer 503. It speaks HTTP without TLS: put a proxy with TLS in front of it before
    it listens on another address than 127.0.0.1.

    Examples:
      iothub --data-dir ./hub admin serve
      iothub --data-dir ./hub admin serve --port 9000
    """
    app.load(flags)
    if hub_pid is None:
        _serve(app, flags, bind, port, lambda _address: None)
        return
    from iothub.hub.workers import supervised

    supervised.end_with_parent()
    if os.getppid() != hub_pid:
        return  # the hub has ended meanwhile
    try:
        _serve(app, flags, bind, port, lambda address: app.data_dir.write_api({"address": address}))
    except IotHubError as error:
        app.data_dir.write_api({"cause": str(error)})
        raise


def _serve(
    app: App, flags: tuple[str, ...], bind: str | None, port: int | None, on_ready: Callable[[str], None]
) -> None:
    settings, store = app.loaded.config, app.store()
    try:
        from iothub.rest.app import make_app
        from iothub.rest.serve import serve as serve_api
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("iothub"):
            raise
        raise ConfigError(
            f"the REST API needs the extra `admin` ({error.name} is missing): install iothub[admin]"
        ) from None
    from iothub.base import log
    from iothub.cli.served_machine import ServedMachine
    from iothub.cli.version import program_version

    log.configure(level=settings.log.level, form=settings.log.format)
    bind = bind or settings.admin.bind
    port = (settings.admin.port or 0) if port is None else port
    if bind not in _LOOPBACK:
        app.say("iothub: warning: keys travel in clear: put a proxy with TLS in front of this address")
    pages = _pages()
    api = make_app(
        store=store,
        hub=ServedHub(app.data_dir),
        machine=ServedMachine(app, flags),
        settings=settings,
        version=program_version(),
        pages=pages,
    )
    proxies = settings.admin.trusted_proxies
    serve_api(api, proxies=proxies, has_pages=pages is not None, bind=bind, port=port, on_ready=on_ready)


def _pages() -> MakePages | None:
    """Return what makes the dashboard; None: NiceGUI is not installed."""
    try:
        from iothub.dashboard.app import Dashboard
    except ModuleNotFoundError as error:
        if error.name != "nicegui":
            raise
        return None
    return Dashboard


class ServedHub:
    """The hub that runs on this data directory, as the API asks it. May be used from any thread."""

    def __init__(self, data_dir: DataDir) -> None:
        self._data_dir = data_dir

    def ask(self, verb: Verb, tenant: str, argument: Json, silence_s: float) -> Answer:
        return self._local.ask(verb, tenant, argument, silence_s)

    def change(self, verb: Verb, tenant: str, argument: Json, total_s: float) -> Json:
        from iothub.cli.local_hub import Patience

        return self._local.change(verb, tenant, argument, Patience(total_s, total_s))

    def ask_workers(self, verb: Verb) -> list[Answer]:
        return self._local.ask_workers(verb)

    def hint_changes(self) -> None:
        self._local.hint_changes()

    def address(self, listener: str) -> str:
        """Return where it listens; empty: nowhere. `http`: its metrics."""
        noted = self._data_dir.read_hub() if self._data_dir.holder() is not None else None
        address = (noted or {}).get(listener)
        return address if isinstance(address, str) else ""

    @property
    def _local(self) -> LocalHub:
        from iothub.cli.local_hub import LocalHub

        return LocalHub(self._data_dir)


@verb(key, "list")
@paged("name")
def list_all(app: App, page: Page) -> None:
    """List all keys. PREFIX is the beginning of a key's text, and no secret.

    Example:
      iothub --data-dir ./hub admin key list
    """
    page.show(app, page.by_name([plain(found) for found in accounts.api_keys.list_all(app.store())]), *COLUMNS)


@verb(key, "show")
@click.argument("name")
def show(app: App, name: str) -> None:
    """Show one key, without its text: only a hash of it is stored.

    Example:
      iothub --data-dir ./hub admin key show ci
    """
    app.record(plain(accounts.api_keys.show(app.store(), name)))


@verb(key, "create")
@click.argument("name")
@click.option("--role", type=click.Choice(ROLES), required=True, help="What its holder may do.")
@click.option("--tenant", help="The tenant that it is for: required for the roles of a tenant, allowed for scrape.")
def create(app: App, name: str, role: str, tenant: str | None) -> None:
    """Create a key and print it, once. It is used as `Authorization: Bearer KEY`.

    platform-admin may do everything, operator everything but keys and users, viewer reads without payloads; tenant-admin and tenant-viewer are
    the same for one tenant, without its plan, limits and state; scrape reads metrics.

    Examples:
      iothub --data-dir ./hub admin key create portal --role platform-admin
      iothub --data-dir ./hub admin key create acme-app --role tenant-admin --tenant acme -o json
    """
    _show_text(app, f"created key {name}", accounts.api_keys.create(app.store(), name, role, tenant))


@verb(key, "rotate")
@click.argument("name")
def rotate(app: App, name: str) -> None:
    """Replace the text of a key and print the new one, once. The old one is refused at once.

    Example:
      iothub --data-dir ./hub admin key rotate ci -o json
    """
    _show_text(app, f"rotated key {name}", accounts.api_keys.rotate(app.store(), name))


account_verbs.add_change(
    key,
    "disable name",
    lambda *given: accounts.api_keys.disable(*given),
    "disabled key {name}",
    """Refuse a key from now on.

    Example:
      iothub --data-dir ./hub admin key disable ci
    """,
)
account_verbs.add_change(
    key,
    "enable name",
    lambda *given: accounts.api_keys.enable(*given),
    "enabled key {name}",
    """Let a disabled key in again.

    Example:
      iothub --data-dir ./hub admin key enable ci
    """,
)


@destroying_verb(key, "delete")
@click.argument("name")
def delete(app: App, name: str, is_dry_run: bool) -> None:
    """Delete a key; it is refused at once.

    Example:
      iothub --data-dir ./hub admin key delete ci --yes
    """
    record = plain(accounts.api_keys.show(app.store(), name))
    if app.may_delete(f"key {name}", record, is_dry_run=is_dry_run):
        accounts.api_keys.remove(app.store(), name)
        app.deleted(f"key {name}", record)


def _show_text(app: App, message: str, made: accounts.api_keys.NewKey) -> None:
    app.done(message, {**plain(made.key), "key": made.text})
    if app.form == "table":
        output.say("the key, shown this once:")
        output.write_text(made.text)
