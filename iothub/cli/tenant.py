"""`iothub tenant`: tenants on the accounts store, whether or not the hub runs.

Knows no store's inside: `iothub_tenants.accounts.tenants` does the work; `deletion` waits for what the hub removes outside the accounts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from iothub.base.errors import ConfigError
from iothub.cli import account_verbs, accounts, deletion, output
from iothub.cli.app import App, destroying_verb, noun, verb
from iothub.cli.files import DASH, NamedPath, read_json, require_free, write_secret_file
from iothub.cli.paging import Page, paged
from iothub_tenants.accounts.plain import plain

if TYPE_CHECKING:
    from iothub_tenants.accounts.store import AccountStore

command = noun("tenant", "Tenants: each is a broker of its own, with its devices, rules, limits and topics.")
COLUMNS = ("name", "state", "plan", "is_protected", "client_id_policy", "created")


@verb(command, "list")
@paged("name")
def list_all(app: App, page: Page) -> None:
    """List the tenants by name.

    Examples:
      iothub --data-dir ./hub tenant list -o json
      iothub --data-dir ./hub tenant list --limit 100 --after acme
    """
    found = accounts.tenants.page(app.store(), page.after, page.to_read)
    page.show(app, [plain(tenant) for tenant in found], *COLUMNS)


@verb(command, "show")
@click.argument("name")
def show(app: App, name: str) -> None:
    """Show one tenant.

    Example:
      iothub --data-dir ./hub tenant show acme
    """
    issuers = [issuer.name for issuer in accounts.token_issuers.list_all(app.store(), name)]
    app.record({**plain(accounts.tenants.show(app.store(), name)), "token_issuers": issuers})


@verb(command, "create")
@click.argument("name")
@click.option("--plan", help="Plan: a set of limits. Default: the setting tenancy.default_plan (standard).")
@click.option(
    "--closed", "is_closed", is_flag=True, help="Do not add the rule that opens all topics to all its devices."
)
@click.option("--display-name", default="", help="A descriptive name.")
@click.option("--client-id-policy", help="owner, equal or prefix. Default: the setting tenancy.client_id_policy.")
def create(
    app: App, name: str, plan: str | None, is_closed: bool, display_name: str, client_id_policy: str | None
) -> None:
    """Create a tenant. NAME: 2 to 32 of a-z, 0-9 and hyphen.

    One rule, shown by `iothub acl list`, lets its devices use all its topics. With --closed nothing is allowed until you add a rule.

    Examples:
      iothub --data-dir ./hub tenant create acme
      iothub --data-dir ./hub tenant create acme --plan unlimited --closed
    """
    tenant = accounts.admin_tenants.create_tenant(
        app.store(),
        app.loaded.config.tenancy,
        name,
        plan=plan,
        is_closed=is_closed,
        display_name=display_name,
        client_id_policy=client_id_policy,
    )
    app.done(f"created tenant {name}\nnext: iothub device create {name} DEVICE", plain(tenant))


@verb(command, "update")
@click.argument("name")
@click.option("--plan", help="Another plan; its limits apply within a second.")
@click.option("--display-name", help="A descriptive name.")
@click.option("--client-id-policy", help="owner, equal or prefix.")
@click.option(
    "--close-on-denied-publish/--keep-on-denied-publish",
    "is_closed_on_denied_publish",
    default=None,
    help="Whether a PUBLISH that no rule allows closes the connection of a 3.x client.",
)
@click.option(
    "--queue-qos0/--no-queue-qos0",
    "is_qos0_queued",
    default=None,
    help="Queue QoS 0 messages for offline sessions too.",
)
@click.option(
    "--allow-network",
    "allowed_networks",
    multiple=True,
    help="Allow connections from these networks only; 'any' removes the restriction.",
)
@click.option(
    "--deny-network",
    "denied_networks",
    multiple=True,
    help="Refuse connections from these networks; 'none' removes the restriction.",
)
def update(app: App, name: str, **changes: Any) -> None:
    """Change the given settings of a tenant; the others stay.

    Examples:
      iothub --data-dir ./hub tenant update acme --plan unlimited
      iothub --data-dir ./hub tenant update acme --allow-network 10.0.0.0/8
    """
    changes["allowed_networks"] = _networks(changes["allowed_networks"], "any")
    changes["denied_networks"] = _networks(changes["denied_networks"], "none")
    settings = accounts.tenants.Settings(**changes)
    if settings == accounts.tenants.Settings():
        raise ConfigError("nothing to change: give at least one option, see `iothub tenant update --help`")
    app.done(f"updated tenant {name}", plain(accounts.tenants.update(app.store(), name, settings)))


account_verbs.add_change(
    command,
    "suspend name",
    lambda *given: accounts.tenants.suspend(*given),
    "suspended tenant {name}",
    """Close a tenant's connections and refuse new ones; everything stored is kept.

    Example:
      iothub --data-dir ./hub tenant suspend acme
    """,
)
account_verbs.add_change(
    command,
    "resume name",
    lambda *given: accounts.tenants.resume(*given),
    "resumed tenant {name}",
    """End a suspension: the tenant's devices may connect again.

    Example:
      iothub --data-dir ./hub tenant resume acme
    """,
)
account_verbs.add_change(
    command,
    "protect name",
    lambda *given: accounts.tenants.protect(*given),
    "protected tenant {name}",
    """Make `tenant delete` refuse this tenant.

    Example:
      iothub --data-dir ./hub tenant protect acme
    """,
)
account_verbs.add_change(
    command,
    "unprotect name",
    lambda *given: accounts.tenants.unprotect(*given),
    "unprotected tenant {name}",
    """Remove delete protection.

    Example:
      iothub --data-dir ./hub tenant unprotect acme
    """,
)


@destroying_verb(command, "delete", is_severe=True)
@click.argument("name")
def delete(app: App, name: str, is_dry_run: bool) -> None:
    """Delete a tenant with everything it has: devices, rules, limits, sessions, queued and retained messages, topics of streams.

    Its devices can no longer connect. The running hub removes what is stored; the command waits up to 10 s for it. Without a hub, the next
    start does it. If it is not finished, the command says so (`is_deleted` is false). The name is free when all is removed.

    Examples:
      iothub --data-dir ./hub tenant delete acme --dry-run
      iothub --data-dir ./hub tenant delete acme --confirm acme
    """
    store = app.store()
    content = _content(store, name)
    record = {**plain(accounts.tenants.show(store, name)), **content}
    what = f"tenant {name} with {_words(content)} and all its messages"
    if is_dry_run:
        app.done(f"would delete {what}", {**record, "is_deleted": False})
        return
    app.confirm_by_name(name, what)
    marked = accounts.tenants.delete(store, name)
    if deletion.finish_deletion(app, marked):
        app.deleted(f"tenant {name}", record)
    else:
        app.done(deletion.what_follows(app, marked), {**record, "is_deleted": False})


@verb(command, "export")
@click.argument("name")
@click.option(
    "--file",
    type=NamedPath(allow_dash=True),
    help="Write to this file, readable by you only; -: standard output (the default).",
)
@click.option("--force", "is_forced", is_flag=True, help="Overwrite an existing file.")
def export(app: App, name: str, file: Path | None, is_forced: bool) -> None:
    """Write a tenant's accounts as JSON: settings, limits, devices, groups, rules, bans, token issuers; no sessions and no messages.

    The file contains password hashes: protect it like the hub's own database. An existing file is not overwritten without --force (exit
    code 4).

    Examples:
      iothub --data-dir ./hub tenant export acme --file acme-backup.json
      iothub --data-dir ./hub tenant export acme > acme.json
    """
    if file is None or file == DASH:
        output.write_json(accounts.transfer.export_tenant(app.store(), name))
        return
    require_free(file, is_forced=is_forced)
    document = accounts.transfer.export_tenant(app.store(), name)
    write_secret_file(file, json.dumps(document, indent=2) + "\n")
    app.done(f"exported tenant {name} to {file}", {"name": name, "file": str(file)})


@verb(command, "import")
@click.argument("file", type=NamedPath(allow_dash=True))
@click.option("--name", help="Name of the new tenant. Default: the exported name.")
@click.option("--dry-run", "is_dry_run", is_flag=True, help="Check everything, create nothing.")
def import_file(app: App, file: Path, name: str | None, is_dry_run: bool) -> None:
    """Create a tenant from a file of `tenant export`, all or nothing. FILE: a path, or - for standard input.

    Generated secrets and shared secrets of token issuers work only on hubs with the same pepper; elsewhere each of these devices and
    token issuers needs a new secret.

    Examples:
      iothub --data-dir ./hub tenant import acme.json --name acme-copy --dry-run
      iothub --data-dir ./hub tenant import acme.json --name acme-copy
    """
    document = read_json(file)
    imported = accounts.transfer.import_tenant(app.store(), document, name=name, is_dry_run=is_dry_run)
    record = {
        **plain(imported.tenant),
        "devices": imported.devices,
        "without_secret": list(imported.without_secret),
        "issuers_without_secret": list(imported.issuers_without_secret),
        "is_imported": not is_dry_run,
    }
    word = "would import" if is_dry_run else "imported"
    app.done(f"{word} tenant {imported.tenant.name}, devices: {imported.devices}", record)
    if imported.without_secret:
        names = ", ".join(imported.without_secret[:10])
        how_many = output.counted(len(imported.without_secret), "device")
        command = f"`iothub device rotate-secret {imported.tenant.name} DEVICE`"
        app.say(f"iothub: warning: {how_many} cannot log in without a new secret ({command}): {names}")
    if imported.issuers_without_secret:
        names = ", ".join(imported.issuers_without_secret)
        command = f"`iothub token-issuer update {imported.tenant.name} NAME --secret-file FILE`"
        app.say(f"iothub: warning: token issuers do not work without a new secret ({command}): {names}")


def _content(store: AccountStore, name: str) -> dict[str, int]:
    return {
        "devices": len(accounts.devices.list_all(store, name)),
        "groups": len(accounts.groups.list_all(store, name)),
        "rules": len(accounts.acl_rules.list_all(store, name)),
        "limits": len(accounts.quotas.list_all(store, name)),
        "bans": len(accounts.bans.list_all(store, name)),
        "token_issuers": len(accounts.token_issuers.list_all(store, name)),
        "streams": len(accounts.streams.list_all(store, name)),
    }


def _words(content: Mapping[str, int]) -> str:
    """Return what a tenant has, without what it has none of: `3 devices, 1 token issuer`."""
    counts = [
        output.counted(count, what.removesuffix("s").replace("_", " ")) for what, count in content.items() if count
    ]
    return ", ".join(counts) or "no devices"


def _networks(given: tuple[str, ...], nothing: str) -> tuple[str, ...] | None:
    if not given:
        return None
    return () if given == (nothing,) else given
