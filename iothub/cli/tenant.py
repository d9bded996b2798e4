"""`iothub tenant`: tenants on the accounts store, whether or not the hub runs.

Knows no store's inside: `iothub_tenants.accounts.tenants` does the work; what a deletion leaves outside the accounts is `leftovers`'.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from iothub.base.errors import ConfigError
from iothub.cli import belongings, leftovers, output
from iothub.cli.app import DRY_RUN, App, noun, verb
from iothub.cli.files import DASH, NamedPath, read_json, require_free, write_secret_file
from iothub_tenants.accounts import acl_rules, bans, devices, groups, quotas, streams, tenants, token_issuers, transfer
from iothub_tenants.accounts.plain import plain
from iothub_tenants.accounts.store import AccountStore

command = noun("tenant", "Tenants: each one is a broker of its own, with its devices, rules, limits and topics.")
COLUMNS = ("name", "state", "plan", "is_protected", "client_id_policy", "created")


@verb(command, "list")
def list_all(app: App) -> None:
    """List all tenants.

    Example:
      iothub --data-dir ./hub tenant list -o json
    """
    app.rows([plain(tenant) for tenant in tenants.list_all(app.store())], *COLUMNS)


@verb(command, "show")
@click.argument("name")
def show(app: App, name: str) -> None:
    """Show one tenant.

    Example:
      iothub --data-dir ./hub tenant show acme
    """
    issuers = [issuer.name for issuer in token_issuers.list_all(app.store(), name)]
    app.record({**plain(tenants.show(app.store(), name)), "token_issuers": issuers})


@verb(command, "create")
@click.argument("name")
@click.option("--plan", help="Plan with its limits. Default: the setting tenancy.default_plan (standard).")
@click.option("--closed", "is_closed", is_flag=True, help="Without the rule that opens all topics to all its devices.")
@click.option("--display-name", default="", help="A name for people.")
@click.option("--client-id-policy", help="owner, equal or prefix. Default: the setting tenancy.client_id_policy.")
def create(
    app: App, name: str, plan: str | None, is_closed: bool, display_name: str, client_id_policy: str | None
) -> None:
    """Create a tenant. NAME: 2 to 32 of a-z, 0-9 and hyphen.

    Its devices may use all its topics, by one rule that `iothub acl list` shows; with --closed nothing is allowed until a
    rule allows it.

    Examples:
      iothub --data-dir ./hub tenant create acme
      iothub --data-dir ./hub tenant create acme --plan unlimited --closed
    """
    tenancy = app.loaded.config.tenancy
    tenant = tenants.create(
        app.store(),
        name,
        plan=plan or tenancy.default_plan,
        is_closed=is_closed,
        display_name=display_name,
        client_id_policy=client_id_policy or tenancy.client_id_policy,
        reserved=frozenset(tenancy.reserved),
    )
    app.done(f"created tenant {name}\nnext: iothub device create {name} DEVICE", plain(tenant))


@verb(command, "update")
@click.argument("name")
@click.option("--plan", help="Another plan; its limits are obeyed within a second.")
@click.option("--display-name", help="A name for people.")
@click.option("--client-id-policy", help="owner, equal or prefix.")
@click.option(
    "--close-on-denied-publish/--keep-on-denied-publish",
    "is_closed_on_denied_publish",
    default=None,
    help="What a 3.x client gets for a PUBLISH that no rule allows.",
)
@click.option("--queue-qos0/--no-queue-qos0", "is_qos0_queued", default=None, help="Store QoS 0 for offline sessions.")
@click.option(
    "--allow-network", "allowed_networks", multiple=True, help="Only these networks may connect. 'any' lifts it."
)
@click.option(
    "--deny-network", "denied_networks", multiple=True, help="These networks may not connect. 'none' lifts it."
)
def update(app: App, name: str, **changes: Any) -> None:
    """Change what is given, leave the rest.

    Examples:
      iothub --data-dir ./hub tenant update acme --plan unlimited
      iothub --data-dir ./hub tenant update acme --allow-network 10.0.0.0/8
    """
    changes["allowed_networks"] = _networks(changes["allowed_networks"], "any")
    changes["denied_networks"] = _networks(changes["denied_networks"], "none")
    settings = tenants.Settings(**changes)
    if settings == tenants.Settings():
        raise ConfigError("nothing to change: give at least one option, see `iothub tenant update --help`")
    app.done(f"updated tenant {name}", plain(tenants.update(app.store(), name, settings)))


belongings.add_change(
    command,
    "suspend name",
    tenants.suspend,
    "suspended tenant {name}",
    """Close its connections and refuse new ones; everything stored is kept.

    Example:
      iothub --data-dir ./hub tenant suspend acme
    """,
)
belongings.add_change(
    command,
    "resume name",
    tenants.resume,
    "resumed tenant {name}",
    """End a suspension.

    Example:
      iothub --data-dir ./hub tenant resume acme
    """,
)
belongings.add_change(
    command,
    "protect name",
    tenants.protect,
    "protected tenant {name}",
    """Make `tenant delete` refuse this tenant.

    Example:
      iothub --data-dir ./hub tenant protect acme
    """,
)
belongings.add_change(
    command,
    "unprotect name",
    tenants.unprotect,
    "unprotected tenant {name}",
    """Let `tenant delete` have this tenant again.

    Example:
      iothub --data-dir ./hub tenant unprotect acme
    """,
)


@verb(command, "delete")
@click.argument("name")
@click.option("--confirm", metavar="NAME", help="The tenant's name once more. Needed without a terminal.")
@DRY_RUN
def delete(app: App, name: str, confirm: str | None, is_dry_run: bool) -> None:
    """Delete a tenant with everything it has: devices, rules, limits, sessions, queued and retained messages, topics of streams.

    Nobody of the tenant gets in from here on. The hub removes what is stored, and the name is free after that: the hub that runs, which
    is waited for a while, or the next one at its start. What is not done yet is told (`is_deleted` is false).

    Examples:
      iothub --data-dir ./hub tenant delete acme --dry-run
      iothub --data-dir ./hub tenant delete acme --confirm acme
    """
    store = app.store()
    belongings = _belongings(store, name)
    if is_dry_run:
        app.record({"name": name, "is_deleted": False, **belongings})
        return
    how_many = output.counted(belongings["devices"], "device")
    app.confirm_by_name(name, confirm, f"tenant {name} with {how_many} and all its messages")
    deletion = tenants.delete(store, name)
    is_gone = leftovers.finish_deletion(app, deletion)
    text = f"deleted tenant {name}" if is_gone else leftovers.what_follows(app, deletion)
    app.done(text, {"name": name, "is_deleted": is_gone, **belongings})


@verb(command, "export")
@click.argument("name")
@click.option(
    "--file",
    type=NamedPath(allow_dash=True),
    help="Write here (readable by you alone) instead of the output; -: the output.",
)
@click.option("--force", "is_forced", is_flag=True, help="Overwrite a file that is there.")
def export(app: App, name: str, file: Path | None, is_forced: bool) -> None:
    """Write a tenant's accounts as JSON: settings, limits, devices, groups, rules, bans, token issuers; no sessions and no messages.

    The text holds the hashes of passwords: treat it like the hub's own database. A file that is there is left alone (exit code 4)
    without --force.

    Examples:
      iothub --data-dir ./hub tenant export acme --file acme-backup.json
      iothub --data-dir ./hub tenant export acme > acme.json
    """
    if file is None or file == DASH:
        output.write_json(transfer.export_tenant(app.store(), name))
        return
    require_free(file, is_forced=is_forced)
    document = transfer.export_tenant(app.store(), name)
    write_secret_file(file, json.dumps(document, indent=2) + "\n")
    app.done(f"exported tenant {name} to {file}", {"name": name, "file": str(file)})


@verb(command, "import")
@click.argument("file", type=NamedPath(allow_dash=True))
@click.option("--name", help="Create it under this name. Default: the name that it had.")
@click.option("--dry-run", "is_dry_run", is_flag=True, help="Check everything, create nothing.")
def import_file(app: App, file: Path, name: str | None, is_dry_run: bool) -> None:
    """Create a tenant from what `tenant export` wrote; all or nothing. FILE: a path, or - for standard input.

    Devices with generated secrets keep them only on the hub that made them; elsewhere each needs a new one. So does a
    token issuer that shares a secret with the hub.

    Examples:
      iothub --data-dir ./hub tenant import acme.json --name acme-copy --dry-run
      iothub --data-dir ./hub tenant import acme.json --name acme-copy
    """
    document = read_json(file)
    imported = transfer.import_tenant(app.store(), document, name=name, is_dry_run=is_dry_run)
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
        app.say(f"iothub: warning: a new secret is needed for {how_many} ({command}): {names}")
    if imported.issuers_without_secret:
        names = ", ".join(imported.issuers_without_secret)
        command = f"`iothub token-issuer update {imported.tenant.name} NAME --secret-file FILE`"
        app.say(f"iothub: warning: token issuers need their secret again ({command}): {names}")


def _belongings(store: AccountStore, name: str) -> dict[str, int]:
    return {
        "devices": len(devices.list_all(store, name)),
        "groups": len(groups.list_all(store, name)),
        "rules": len(acl_rules.list_all(store, name)),
        "limits": len(quotas.list_all(store, name)),
        "bans": len(bans.list_all(store, name)),
        "token_issuers": len(token_issuers.list_all(store, name)),
        "streams": len(streams.list_all(store, name)),
    }


def _networks(given: tuple[str, ...], nothing: str) -> tuple[str, ...] | None:
    if not given:
        return None
    return () if given == (nothing,) else given
