"""`iothub acl`: access rules on the accounts store; a running hub applies a change within a second.

Knows no evaluation: `iothub_services.auth` compiles the rules.
"""

from __future__ import annotations

from pathlib import Path

import click

from iothub.base.errors import ConfigError, DeniedError
from iothub.cli import accounts, output
from iothub.cli.app import App, noun, verb
from iothub.cli.files import NamedPath, opened_lines
from iothub.cli.output import Row
from iothub.cli.paging import Page, paged
from iothub_tenants.accounts.plain import plain

command = noun(
    "acl",
    "Access rules. SUBJECT: a device, @GROUP, or '*' for all devices of the tenant. The most specific matching rule decides: "
    "device before group before '*'; at the same level deny before allow. No match: denied.",
)
ACTION = click.Choice(("publish", "subscribe", "both"))
COLUMNS = ("id", "subject", "effect", "action", "filter")


@verb(command, "list")
@click.argument("tenant")
@click.argument("subject", required=False)
@paged("id")
def list_all(app: App, tenant: str, subject: str | None, page: Page) -> None:
    """List the rules of a tenant, or those that apply to one SUBJECT, in order of precedence; ID is what `acl remove` takes.

    To a device apply its own rules, those of its groups and those of '*'; to a group its own and those of '*'.

    Examples:
      iothub --data-dir ./hub acl list acme
      iothub --data-dir ./hub acl list acme dev1
    """
    store = app.store()
    rules = (
        accounts.acl_rules.list_all(store, tenant)
        if subject is None
        else accounts.acl_rules.list_applying(store, tenant, subject)
    )
    page.show(app, page.by_place([_row(rule) for rule in rules], _place), *COLUMNS, place=_place)


@verb(command, "allow")
@click.argument("tenant")
@click.argument("subject")
@click.argument("action", type=ACTION)
@click.argument("topic_filter", metavar="FILTER")
def allow(app: App, tenant: str, subject: str, action: str, topic_filter: str) -> None:
    """Allow SUBJECT to publish, subscribe or both on topics that match FILTER.

    In FILTER, a level {device} or {clientid} stands for the device's name or the client id of the connection.

    Examples:
      iothub --data-dir ./hub acl allow acme dev1 publish 'sensors/dev1/#'
      iothub --data-dir ./hub acl allow acme '*' both 'private/{device}/#'
    """
    rule = accounts.acl_rules.allow(app.store(), tenant, subject, action, topic_filter)
    app.done(f"rule {rule.id}: allow {subject} to {action} {topic_filter}", _row(rule))


@verb(command, "deny")
@click.argument("tenant")
@click.argument("subject")
@click.argument("action", type=ACTION)
@click.argument("topic_filter", metavar="FILTER")
def deny(app: App, tenant: str, subject: str, action: str, topic_filter: str) -> None:
    """Forbid SUBJECT to publish, subscribe or both on topics that match FILTER.

    Example:
      iothub --data-dir ./hub acl deny acme '*' publish 'config/#'
    """
    rule = accounts.acl_rules.deny(app.store(), tenant, subject, action, topic_filter)
    app.done(f"rule {rule.id}: deny {subject} to {action} {topic_filter}", _row(rule))


@verb(command, "import")
@click.argument("tenant")
@click.argument("file", type=NamedPath(allow_dash=True))
@click.option(
    "--from",
    "form",
    type=click.Choice(("csv", "mosquitto")),
    default="csv",
    show_default=True,
    help="What wrote FILE: an ACL file of Mosquitto.",
)
@click.option("--dry-run", "is_dry_run", is_flag=True, help="Check all rules; import nothing.")
def import_file(app: App, tenant: str, file: Path, form: str, is_dry_run: bool) -> None:
    """Add many rules from a CSV file with the columns subject,effect,action,filter: all or none. FILE: a path, or - for standard input.

    It reads what `acl list TENANT -o csv` writes. Rules that are there already stay as they are. Bad lines are reported with their numbers
    (exit code 4).

    Examples:
      iothub --data-dir ./hub acl import acme rules.csv
      iothub --data-dir ./hub acl import acme mosquitto.acl --from mosquitto --dry-run
    """
    with opened_lines(file) as lines:
        result = accounts.acl_import.import_file(app.store(), tenant, lines, form, is_dry_run=is_dry_run)
    record = {"name": tenant, "rules": result.added, "rules_there_already": result.present}
    there = f" ({result.present} there already)" if result.present else ""
    number = output.counted(result.added, "rule") + there
    if is_dry_run:
        app.done(f"would import {number}", {**record, "is_imported": False})
    else:
        app.done(f"imported {number}", {**record, "is_imported": True})


@verb(command, "remove")
@click.argument("tenant")
@click.argument("rule", metavar="RULE|SUBJECT")
@click.argument("action", type=ACTION, required=False)
@click.argument("topic_filter", metavar="FILTER", required=False)
def remove(app: App, tenant: str, rule: str, action: str | None, topic_filter: str | None) -> None:
    """Remove a rule, by its number or by SUBJECT ACTION FILTER.

    Examples:
      iothub --data-dir ./hub acl remove acme 7
      iothub --data-dir ./hub acl remove acme dev1 publish 'sensors/dev1/#'
    """
    if action is not None and topic_filter is not None:
        removed = accounts.acl_rules.remove_matching(app.store(), tenant, rule, action, topic_filter)
    elif action is None and rule.isascii() and rule.isdecimal() and len(rule) < 19:
        removed = [accounts.acl_rules.remove(app.store(), tenant, int(rule))]
    else:
        raise ConfigError(
            f"expected the number of a rule, or SUBJECT ACTION FILTER; `iothub acl list {tenant}` shows both"
        )
    numbers = ", ".join(str(gone.id) for gone in removed)
    app.done(f"removed rule {numbers}", {"rules": [_row(gone) for gone in removed]})


@verb(command, "test")
@click.argument("tenant")
@click.argument("device")
@click.argument("action", type=click.Choice(("publish", "subscribe")))
@click.argument("topic", metavar="TOPIC")
@click.option("--client-id", help="Value for {clientid} in filters. Default: the device's name.")
@click.pass_context
def test(
    context: click.Context, app: App, tenant: str, device: str, action: str, topic: str, client_id: str | None
) -> None:
    """Say whether DEVICE may publish to TOPIC, or subscribe to it, and which rule decides.

    TOPIC is a Topic Name; with subscribe it may be a Topic Filter. Exit code 0: allowed, 5: denied.

    Examples:
      iothub --data-dir ./hub acl test acme dev1 publish sensors/dev1/temperature
      iothub --data-dir ./hub acl test acme dev1 subscribe '$share/workers/jobs/#' -o json
    """
    verdict = accounts.verdicts.verdict(app.store(), tenant, device, action, topic, client_id=client_id)
    rule = None if verdict.rule is None else _row(verdict.rule)
    app.record(
        {
            "name": device,
            "action": action,
            "topic": topic,
            "is_allowed": verdict.is_allowed,
            "reason": verdict.reason,
            "rule": rule if app.form != "table" or rule is None else _words(rule),
        }
    )
    if not verdict.is_allowed:
        context.exit(DeniedError.exit_code)


def _words(rule: dict[str, object]) -> str:
    return f"{rule['number']}: {rule['effect']} {rule['subject']} to {rule['action']} {rule['filter']}"


def _place(row: Row) -> str:
    return str(row["id"])


def _row(rule: accounts.acl_rules.AclRule) -> dict[str, object]:
    return {"number": rule.id, **plain(rule)}
