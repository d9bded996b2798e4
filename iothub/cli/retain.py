"""`iothub retain`: retained messages of a tenant, listed and deleted by the running hub.

Knows no store.
"""

from __future__ import annotations

import click

from iothub.admin.hub_rows import retained_message, retained_row
from iothub.base.errors import ConfigError, NotFoundError
from iothub.cli import audit, output
from iothub.cli.app import TIMEOUT, App, destroying_verb, noun, verb
from iothub.cli.paging import LIMIT, after
from iothub.cli.progress import Progress
from iothub.records.admin_commands import Verb, messages_in
from iothub.records.message import decode_message

command = noun("retain", "Retained messages: the last message of a topic, kept for later subscribers.")


@verb(command, "list")
@click.argument("tenant")
@click.option("--filter", "topic_filter", default="#", help="Only topics that match this Topic Filter.")
@LIMIT
@after("topic")
def list_all(app: App, tenant: str, topic_filter: str, limit: int, after: str) -> None:
    """List the topics of a tenant that have a retained message, sorted. The hub must run.

    Examples:
      iothub --data-dir ./hub retain list acme
      iothub --data-dir ./hub retain list acme --filter 'room/+/temperature' -o json
    """
    answer = app.hub.ask(Verb.RETAIN_LIST, tenant, {"filter": topic_filter, "after": after, "limit": limit})
    app.rows([retained_row(reported) for reported in answer.rows], "name", "bytes", "version", "expires")
    app.say_more_follow(answer.result["next"])


@verb(command, "show")
@click.argument("tenant")
@click.argument("topic")
@click.option("--raw", "is_raw", is_flag=True, help="Write the payload only, unchanged.")
def show(app: App, tenant: str, topic: str, is_raw: bool) -> None:
    """Show one retained message. The hub must run.

    Examples:
      iothub --data-dir ./hub retain show acme room/temperature
      iothub --data-dir ./hub retain show acme image --raw > image.png
    """
    answer = app.hub.ask(Verb.RETAIN_SHOW, tenant, {"topic": topic})
    ((facts, body),) = messages_in(answer.rows)
    if is_raw:
        if app.is_remote:
            raise ConfigError("--raw needs the hub's machine: with a context, leave it out, or subscribe to the topic")
        output.write_bytes(decode_message(body).payload)
        return
    app.record({"name": topic, "version": answer.result["version"], **retained_message(facts, body)})


@destroying_verb(command, "delete", dry_run="Count what would be deleted; delete nothing.")
@click.argument("tenant")
@click.argument("topic", metavar="TOPIC|FILTER", required=False)
@click.option("--filter", "topic_filter", help="The same as the argument.")
@TIMEOUT
def delete(
    app: App,
    tenant: str,
    topic: str | None,
    topic_filter: str | None,
    is_dry_run: bool,
    timeout_s: float | None,
) -> None:
    """Delete the retained message of a topic, or of all topics that match a filter. The hub must run.

    The hub reports its progress. It continues if the command is interrupted or --timeout is over (exit code 7); --dry-run counts what is left.
    Hubs that share the stores delete what they have in memory, too; one that does not answer is named (exit code 7).

    Examples:
      iothub --data-dir ./hub retain delete acme room/temperature --yes
      iothub --data-dir ./hub retain delete acme --filter 'room/#' --dry-run
    """
    chosen = topic_filter or topic
    if chosen is None or (topic is not None and topic_filter is not None and topic != topic_filter):
        raise ConfigError("expected one topic or filter: iothub retain delete TENANT FILTER")
    count = int(str(app.hub.ask(Verb.RETAIN_COUNT, tenant, {"filter": chosen}).result["messages"]))
    if is_dry_run:
        _require_some(count, tenant, chosen)
        text = f"would delete {output.counted(count, 'retained message')}"
        app.done(text, {"name": chosen, "messages": count, "is_deleted": False})
        return
    if count:
        app.confirm(f"Delete {output.counted(count, 'retained message')} of tenant {tenant}?")
    with Progress("retained messages deleted") as progress:
        answer = app.change_hub(tenant, Verb.RETAIN_DELETE, {"filter": chosen}, timeout_s, progress)
    deleted = int(str(answer["messages"]))
    audit.note(app, tenant, "retained", chosen, "deleted", messages=deleted)
    if app.is_all_answered:
        _require_some(deleted, tenant, chosen)
    text = f"deleted {output.counted(deleted, 'retained message')}"
    app.done(text, {"name": chosen, "messages": deleted, "is_deleted": True})


def _require_some(count: int, tenant: str, chosen: str) -> None:
    """Raise NotFoundError for one topic without a message; a filter with wildcards may match nothing."""
    if not count and not {"+", "#"} & set(chosen):
        raise NotFoundError(
            f"tenant {tenant} has no retained message on {chosen!r}; `iothub retain list {tenant}` shows them"
        )
