"""`iothub group`: groups of devices, which access rules name as `@GROUP`.

Knows no rule.
"""

from __future__ import annotations

import click

from iothub.cli import account_verbs, accounts
from iothub.cli.app import App, destroying_verb, noun
from iothub_tenants.accounts.plain import plain

command = noun("group", "Groups of devices; access rules name one as @GROUP.")


account_verbs.add_list(
    command,
    lambda store, tenant: accounts.groups.list_all(store, tenant),
    ("name", "devices"),
    """List the groups of a tenant with their devices.

    Example:
      iothub --data-dir ./hub group list acme
    """,
)
account_verbs.add_show(
    command,
    lambda store, tenant, name: accounts.groups.show(store, tenant, name),
    """Show one group.

    Example:
      iothub --data-dir ./hub group show acme sensors
    """,
)
account_verbs.add_change(
    command,
    "create tenant name",
    lambda *given: accounts.groups.create(*given),
    "created group {name}",
    """Create an empty group.

    Example:
      iothub --data-dir ./hub group create acme sensors
    """,
)
account_verbs.add_change(
    command,
    "join tenant name device",
    lambda *given: accounts.groups.join(*given),
    "{device} is in group {name}",
    """Add a device to a group.

    Example:
      iothub --data-dir ./hub group join acme sensors dev1
    """,
)
account_verbs.add_change(
    command,
    "leave tenant name device",
    lambda *given: accounts.groups.leave(*given),
    "{device} is not in group {name}",
    """Remove a device from a group.

    Example:
      iothub --data-dir ./hub group leave acme sensors dev1
    """,
)


@destroying_verb(command, "delete")
@click.argument("tenant")
@click.argument("name")
def delete(app: App, tenant: str, name: str, is_dry_run: bool) -> None:
    """Delete a group and the rules that name it; its devices stay.

    Example:
      iothub --data-dir ./hub group delete acme sensors --yes
    """
    record = plain(accounts.groups.show(app.store(), tenant, name))
    if app.may_delete(f"group {name} and its rules", record, is_dry_run=is_dry_run):
        accounts.groups.delete(app.store(), tenant, name)
        app.deleted(f"group {name}", record)
