"""`iothub webhook`: events as signed HTTP requests, for a tenant or for the platform; on the accounts store, whether or not a hub runs.

Knows no HTTP: hubs deliver.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import click

from iothub.base.errors import ConfigError, UnavailableError
from iothub.cli import accounts, output
from iothub.cli.app import App, destroying_verb, noun, verb
from iothub.cli.paging import Page, paged
from iothub_tenants.accounts.plain import plain

if TYPE_CHECKING:
    from iothub_tenants.accounts.webhooks import NewWebhook

command = noun("webhook", "Webhooks: events as signed HTTP requests, for a tenant or for the platform.")
COLUMNS = ("name", "tenant", "url", "events", "is_enabled", "created")
ATTEMPTS = ("at", "event", "event_id", "result", "status", "detail", "node")

C = TypeVar("C", bound=Callable[..., object])


def _tenant(function: C) -> C:
    return click.option("--tenant", help="Whose webhook. Without it, the platform's.")(function)


def _events(function: C) -> C:
    text = 'What it is for: "*", a group such as "client/*", or an event such as client/connected. May be repeated.'
    return click.option("--event", "events", multiple=True, metavar="EVENT", help=text)(function)


@verb(command, "list")
@_tenant
@paged("name")
def list_all(app: App, tenant: str | None, page: Page) -> None:
    """List the webhooks of a tenant, or those of the platform.

    Example:
      iothub --data-dir ./hub webhook list --tenant acme
    """
    found = accounts.webhooks.list_all(app.store(), tenant)
    page.show(app, page.by_name([plain(webhook) for webhook in found]), *COLUMNS)


@verb(command, "show")
@click.argument("name")
@_tenant
def show(app: App, name: str, tenant: str | None) -> None:
    """Show one webhook, without its secret, and its last attempts at all hubs.

    Example:
      iothub --data-dir ./hub webhook show pager --tenant acme -o json
    """
    record = plain(accounts.webhooks.show(app.store(), tenant, name))
    attempts = [plain(found) for found in accounts.webhooks.attempts(app.store(), tenant, name)]
    app.record(record if app.form == "table" else {**record, "attempts": attempts})
    app.section("Last attempts", [{column: row.get(column) for column in ATTEMPTS} for row in attempts])


@verb(command, "create")
@click.argument("name")
@click.argument("url")
@_tenant
@_events
def create(app: App, name: str, url: str, tenant: str | None, events: tuple[str, ...]) -> None:
    """Create a webhook and print its secret, once. Running hubs use it within seconds.

    With --tenant it gets the events of this tenant; without, those of all tenants, and those of the platform: alarms, hubs, tenants, jobs.
    Without --event it gets all of them.

    Examples:
      iothub --data-dir ./hub webhook create pager https://hooks.example.com/iothub --tenant acme --event 'client/*'
      iothub --data-dir ./hub webhook create ops https://hooks.example.com/ops --event 'alarm/*'
    """
    networks = app.loaded.config.webhooks.allow_networks
    made = accounts.webhooks.create(app.store(), tenant, name, url, events or ("*",), networks=networks)
    _show_secret(app, f"created webhook {name}", made)


@verb(command, "update")
@click.argument("name")
@_tenant
@click.option("--url", help="Where it leads from now on.")
@_events
@click.option("--enable/--disable", "is_enabled", default=None, help="What waits for a disabled webhook is dropped.")
def update(
    app: App, name: str, tenant: str | None, url: str | None, events: tuple[str, ...], is_enabled: bool | None
) -> None:
    """Change what is given; --event replaces all events.

    Example:
      iothub --data-dir ./hub webhook update pager --tenant acme --event 'client/*' --event quota/exceeded
    """
    if url is None and not events and is_enabled is None:
        raise ConfigError("nothing to change: expected --url, --event, --enable or --disable")
    changes = accounts.webhooks.Changes(url, events or None, is_enabled)
    networks = app.loaded.config.webhooks.allow_networks
    changed = accounts.webhooks.change(app.store(), tenant, name, changes, networks=networks)
    app.done(f"updated webhook {name}", plain(changed))


@verb(command, "rotate")
@click.argument("name")
@_tenant
def rotate(app: App, name: str, tenant: str | None) -> None:
    """Replace the secret and print the new one, once. For a day requests are signed with both.

    Example:
      iothub --data-dir ./hub webhook rotate pager --tenant acme
    """
    _show_secret(app, f"rotated the secret of webhook {name}", accounts.webhooks.rotate(app.store(), tenant, name))


@verb(command, "test")
@click.argument("name")
@_tenant
def test(app: App, name: str, tenant: str | None) -> None:
    """Send the event webhook/test from this machine, and say what the receiver answers. Exit code 7: it was not delivered.

    Example:
      iothub --data-dir ./hub webhook test pager --tenant acme
    """
    record = accounts.admin_webhooks.send_test(app.store(), app.loaded.config, tenant, name)
    if not record["is_delivered"]:
        raise UnavailableError(f"webhook {name} was not delivered: {record['detail']}")
    app.done(f"delivered: status {record['status']}", record)


@destroying_verb(command, "delete")
@click.argument("name")
@_tenant
def delete(app: App, name: str, tenant: str | None, is_dry_run: bool) -> None:
    """Delete a webhook and its attempts; what waits for it is dropped.

    Example:
      iothub --data-dir ./hub webhook delete pager --tenant acme --yes
    """
    record = plain(accounts.webhooks.show(app.store(), tenant, name))
    if app.may_delete(f"webhook {name}", record, is_dry_run=is_dry_run):
        accounts.webhooks.remove(app.store(), tenant, name)
        app.deleted(f"webhook {name}", record)


def _show_secret(app: App, message: str, made: NewWebhook) -> None:
    app.done(message, {**plain(made.webhook), "secret": made.secret})
    if app.form == "table":
        output.say("the secret, shown this once:")
        output.write_text(made.secret)
