"""`iothub admin`: the REST API, and the keys that may use it. Keys are on the accounts store, whether or not anything runs.

Knows no HTTP: `iothub.rest` is loaded when it is to be served.
"""

from __future__ import annotations

import click

from iothub.cli import account_verbs, accounts, output
from iothub.cli.app import App, destroying_verb, noun, verb
from iothub_tenants.accounts.plain import plain

command = noun("admin", "The REST API: serve it, and the keys that may use it.")
key = noun("key", "Keys of the REST API: who may do what, for the whole platform or for one tenant.")
command.add_command(key)

ROLES = ("platform-admin", "operator", "viewer", "tenant-admin", "tenant-viewer", "scrape")
COLUMNS = ("name", "role", "tenant", "prefix", "is_enabled", "created")


@verb(key, "list")
def list_all(app: App) -> None:
    """List all keys. PREFIX is the beginning of a key's text, and no secret.

    Example:
      iothub --data-dir ./hub admin key list
    """
    app.rows([plain(found) for found in accounts.api_keys.list_all(app.store())], *COLUMNS)


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

    platform-admin may do everything, operator everything but keys, viewer reads without payloads; tenant-admin and tenant-viewer are the same
    for one tenant, without its plan, limits and state; scrape reads metrics.

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
