"""`iothub group`: groups of devices, which access rules name as `@GROUP`.

Knows no rule.
"""

from __future__ import annotations

import click

from iothub.cli.app import AGREED, DRY_RUN, App, noun, verb
from iothub_tenants.accounts import groups
from iothub_tenants.accounts.plain import plain

command = noun("group", "Groups of devices; access rules name one as @GROUP.")


@verb(command, "list")
@click.argument("tenant")
def list_all(app: App, tenant: str) -> None:
    """List the groups of a tenant with their devices.

    Example:
      iothub --data-dir ./hub group list acme
    """
    app.rows([plain(group) for group in groups.list_all(app.store(), tenant)], "name", "devices")


@verb(command, "show")
@click.argument("tenant")
@click.argument("name")
def show(app: App, tenant: str, name: str) -> None:
    """Show one group.

    Example:
      iothub --data-dir ./hub group show acme sensors
    """
    app.record(plain(groups.show(app.store(), tenant, name)))


@verb(command, "create")
@click.argument("tenant")
@click.argument("name")
def create(app: App, tenant: str, name: str) -> None:
    """Create an empty group.

    Example:
      iothub --data-dir ./hub group create acme sensors
    """
    app.done(f"created group {name}", plain(groups.create(app.store(), tenant, name)))


@verb(command, "join")
@click.argument("tenant")
@click.argument("name")
@click.argument("device")
def join(app: App, tenant: str, name: str, device: str) -> None:
    """Put a device into a group.

    Example:
      iothub --data-dir ./hub group join acme sensors dev1
    """
    app.done(f"{device} is in group {name}", plain(groups.join(app.store(), tenant, name, device)))


@verb(command, "leave")
@click.argument("tenant")
@click.argument("name")
@click.argument("device")
def leave(app: App, tenant: str, name: str, device: str) -> None:
    """Take a device out of a group.

    Example:
      iothub --data-dir ./hub group leave acme sensors dev1
    """
    app.done(f"{device} is not in group {name}", plain(groups.leave(app.store(), tenant, name, device)))


@verb(command, "delete")
@click.argument("tenant")
@click.argument("name")
@AGREED
@DRY_RUN
def delete(app: App, tenant: str, name: str, is_agreed: bool, is_dry_run: bool) -> None:
    """Delete a group and the rules that name it; its devices stay.

    Example:
      iothub --data-dir ./hub group delete acme sensors
    """
    record = plain(groups.show(app.store(), tenant, name))
    if app.is_deletion_meant(f"group {name} and its rules", record, is_agreed=is_agreed, is_dry_run=is_dry_run):
        groups.delete(app.store(), tenant, name)
        app.done(f"deleted group {name}", record)
