"""`iothub retain`: retained messages of a tenant, read from the store; deleted by the running hub, or here when none runs.

Knows no table: `iothub.cli.stores` opens the store.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import click

from iothub.base.errors import ConfigError, NotFoundError
from iothub.cli import output, stores
from iothub.cli.app import AGREED, TIMEOUT, App, noun, verb
from iothub.cli.content import describe, time_of
from iothub.cli.progress import Progress
from iothub.engine.filters import check_topic_filter, topic_matches
from iothub.records.admin_commands import Verb
from iothub.records.message import decode_message
from iothub_services.retained.port import RetainedStore, RetainedTopic
from iothub_tenants.accounts import tenants

command = noun("retain", "Retained messages: the last message of a topic, kept for whoever subscribes later.")
_MAX_BYTES = 65_535  # §1.5.4: the longest UTF-8 string of the protocol


@verb(command, "list")
@click.argument("tenant")
@click.option("--filter", "topic_filter", default="#", help="Only topics that match this Topic Filter.")
@click.option("--limit", type=click.IntRange(1), default=1000, show_default=True, help="At most so many.")
@click.option("--after", default="", help="Begin behind this topic (the last one of the previous page).")
def list_all(app: App, tenant: str, topic_filter: str, limit: int, after: str) -> None:
    """List the topics of a tenant that have a retained message, in order.

    Examples:
      iothub --data-dir ./hub retain list acme
      iothub --data-dir ./hub retain list acme --filter 'room/+/temperature' -o json
    """
    tenant_id = tenants.show(app.store(), tenant).id
    wanted = _checked_filter(topic_filter)
    with stores.reading_retained(app.data_dir, app.loaded.config) as retained:
        matching = _matching(retained, tenant_id, wanted, is_special_shown=topic_filter == "#")
        found = list(islice((each for each in matching if each.topic > after.encode()), limit + 1))
    rows = [_row(each) for each in found[:limit]]
    app.rows(rows, "name", "bytes", "version", "expires")
    if len(found) > limit:
        app.say_more_follow(str(rows[-1]["name"]))


@verb(command, "show")
@click.argument("tenant")
@click.argument("topic")
@click.option("--raw", "is_raw", is_flag=True, help="Write the payload alone, byte by byte.")
def show(app: App, tenant: str, topic: str, is_raw: bool) -> None:
    """Show one retained message.

    Examples:
      iothub --data-dir ./hub retain show acme room/temperature
      iothub --data-dir ./hub retain show acme image --raw > image.png
    """
    tenant_id = tenants.show(app.store(), tenant).id
    with stores.reading_retained(app.data_dir, app.loaded.config) as retained:
        bodies = retained.fetch(tenant_id, [topic.encode()]) if retained is not None else []
    if not bodies:
        raise _missing(tenant, topic)
    message = decode_message(bodies[0].body)
    if is_raw:
        output.write_bytes(message.payload)
        return
    app.record({"name": topic, "version": bodies[0].version, **describe(bodies[0].body)})


@verb(command, "delete")
@click.argument("tenant")
@click.argument("topic", metavar="TOPIC|FILTER", required=False)
@click.option("--filter", "topic_filter", help="The same as the argument.")
@AGREED
@click.option("--dry-run", "is_dry_run", is_flag=True, help="Only count what would be deleted.")
@TIMEOUT
def delete(
    app: App,
    tenant: str,
    topic: str | None,
    topic_filter: str | None,
    is_agreed: bool,
    is_dry_run: bool,
    timeout_s: float | None,
) -> None:
    """Delete the retained message of a topic, or of all topics that match a filter.

    A running hub tells how far it is. It goes on when the command is interrupted, or has waited for --timeout (exit code 7);
    `iothub status` shows it.

    Examples:
      iothub --data-dir ./hub retain delete acme room/temperature
      iothub --data-dir ./hub retain delete acme --filter 'room/#' --dry-run
    """
    chosen = topic_filter or topic
    if chosen is None or (topic is not None and topic_filter is not None and topic != topic_filter):
        raise ConfigError("expected one topic or filter: iothub retain delete TENANT FILTER")
    tenant_id = tenants.show(app.store(), tenant).id
    wanted = _checked_filter(chosen)
    with stores.reading_retained(app.data_dir, app.loaded.config) as retained:
        count = sum(1 for _ in _matching(retained, tenant_id, wanted))
    if is_dry_run:
        _require_some(count, tenant, chosen)
        text = f"would delete {output.counted(count, 'retained message')}"
        app.done(text, {"name": chosen, "messages": count, "is_deleted": False})
        return
    if count:
        question = f"Delete {output.counted(count, 'retained message')} of tenant {tenant}?"
        app.confirm(question, is_agreed=is_agreed)
    deleted = _delete(app, tenant, tenant_id, chosen, timeout_s)
    _require_some(deleted, tenant, chosen)
    text = f"deleted {output.counted(deleted, 'retained message')}"
    app.done(text, {"name": chosen, "messages": deleted, "is_deleted": True})


def _require_some(count: int, tenant: str, chosen: str) -> None:
    """Raise NotFoundError for one topic that has no message; a filter with wildcards may match nothing."""
    if not count and not {"+", "#"} & set(chosen):
        raise _missing(tenant, chosen)


def _missing(tenant: str, topic: str) -> NotFoundError:
    return NotFoundError(
        f"tenant {tenant} has no retained message on {topic!r}; `iothub retain list {tenant}` shows them"
    )


def _delete(app: App, tenant: str, tenant_id: int, chosen: str, timeout_s: float | None) -> int:
    with stores.working_alone(app.data_dir, "iothub retain delete", app.loaded.config) as alone:
        if alone is not None:
            topics = [found.topic for found in _matching(alone.retained, tenant_id, chosen.encode())]
            return alone.retained.delete(tenant_id, topics)
    with Progress("retained messages are deleted") as progress:
        answer = app.ask_hub(tenant, Verb.RETAIN_DELETE, {"filter": chosen}, timeout_s, progress)
    return int(str(answer["messages"]))


def _matching(
    retained: RetainedStore | None, tenant_id: int, wanted: bytes, *, is_special_shown: bool = False
) -> Iterator[RetainedTopic]:
    """Yield the topics that match; `#` leaves out those that begin with $ [MQTT-4.7.2-1] unless they are asked for."""
    for found in retained.load(tenant_id) if retained is not None else ():
        if is_special_shown or topic_matches(wanted, found.topic):
            yield found


def _checked_filter(text: str) -> bytes:
    octets = text.encode(errors="surrogateescape")
    if check_topic_filter(octets, _MAX_BYTES, _MAX_BYTES) or octets.startswith(b"$share/"):
        raise ConfigError(f"{text!r} is no Topic Filter: + and # must be alone in their level, # the last one")
    return octets


def _row(found: RetainedTopic) -> dict[str, object]:
    name = found.topic.decode(errors="replace")
    return {"name": name, "bytes": found.size, "version": found.version, "expires": time_of(found.expires_at_ms)}
