"""`iothub stream`: messages from a tenant's devices to Kafka, and from applications to its devices.

Knows no driver: `iothub_services.streams` creates and reads topics; a running hub follows changes of the accounts.
"""

from __future__ import annotations

from typing import cast

import click

from iothub.base.errors import ConfigError, ConflictError, NotFoundError, UnavailableError
from iothub.cli import accounts, stream_topics
from iothub.cli.app import App, destroying_verb, noun, verb
from iothub.cli.durations import seconds
from iothub.cli.numbers import WholeNumber
from iothub.cli.paging import Page, paged
from iothub.records.admin_commands import Verb
from iothub_services.streams.port import Direction, Stream, refused_topic, topic_name

command = noun("stream", "Streams: messages of devices to a Kafka topic, and records of an application to devices.")
COLUMNS = ("name", "direction", "filter", "topic", "partitions", "retention_s")
_ASK_TIMEOUT_S = 3.0


@verb(command, "list")
@click.argument("tenant")
@paged("name")
def list_all(app: App, tenant: str, page: Page) -> None:
    """List the streams of a tenant.

    Example:
      iothub --data-dir ./hub stream list acme
    """
    found = accounts.stream_topics.rows(app.store(), app.loaded.config, tenant)
    page.show(app, page.by_name(found), *COLUMNS)


@verb(command, "show")
@click.argument("tenant")
@click.argument("name")
@click.option(
    "--consumer-group",
    "group",
    metavar="GROUP",
    help="Consumer group of your application, to show its lag. Only with direction out.",
)
@click.pass_context
def show(context: click.Context, app: App, tenant: str, name: str, group: str | None) -> None:
    """Show one stream: its topic, what Kafka holds, the lag, and counts of the running hub.

    `messages_in_topic`: messages that Kafka holds. `lag`: messages that a consumer group has not committed, with direction in the hub's
    group, with direction out that of --consumer-group. Since the start of the hub that runs here: `messages`, `bytes` of whole records
    (out: payload, key and headers, approximately) or of messages (in: payload, topic, properties), `messages_per_s`, `pending` (not
    acknowledged yet), `refused`.

    Exit code 7 when Kafka or a hub does not answer, 4 when Kafka's topics belong to another installation. With a context, what Kafka holds is
    not shown.

    Examples:
      iothub --data-dir ./hub stream show acme telemetry --consumer-group billing
      iothub --data-dir ./hub stream show acme commands -o json
    """
    if app.is_remote:
        if group is not None:
            raise ConfigError("--consumer-group does not work with a context: run it on the hub's machine")
        there = accounts.stream_topics.shown(app.store(), app.loaded.config, tenant, name)
        app.record({**there, "messages_in_topic": None, "lag": None})
        return
    stream = accounts.streams.show(app.store(), tenant, name)
    record = {**_row(app, stream), "messages_in_topic": None, "lag": None, **_of_hub(app, tenant, name)}
    code = 0
    try:
        topics = stream_topics.reached(app.loaded.config)
        stream_topics.owned(app.loaded.config, app.data_dir).check()
        state = topics.state(str(record["topic"]), _group(app, stream, group))
        if state is None:
            app.say(f"iothub: warning: Kafka has no topic {record['topic']}: a hub creates it with the next message")
        else:
            record |= {"partitions": state.partitions, "messages_in_topic": state.messages, "lag": state.lag}
    except (UnavailableError, ConflictError) as error:
        app.say(f"iothub: warning: {error}")
        code = error.exit_code
    app.record(record)
    if code:
        context.exit(code)


@verb(command, "create")
@click.argument("tenant")
@click.argument("name")
@click.argument("topic_filter", metavar="FILTER")
@click.option(
    "--direction",
    type=click.Choice([each.value for each in Direction]),
    default=Direction.OUT.value,
    help="out (default): devices to Kafka. in: an application's records to devices.",
)
@click.option("--partitions", type=WholeNumber(1), help="Default: setting streams.partitions.")
@click.option(
    "--retention",
    "retention_s",
    metavar="DURATION",
    callback=seconds,
    help='How long Kafka keeps messages, such as "7d". Default: setting streams.retention.',
)
def create(
    app: App,
    tenant: str,
    name: str,
    topic_filter: str,
    direction: str,
    partitions: int | None,
    retention_s: float | None,
) -> None:
    """Create a stream and its Kafka topic; a running hub uses it within a second.

    Direction out: every PUBLISH that matches FILTER goes to the topic PREFIX.TENANT.NAME, and its publisher is answered when Kafka has
    stored it. Direction in: the hub publishes the records of PREFIX.TENANT.NAME.in to devices; each record has a header `topic` that
    matches FILTER, and access rules must allow the subject stream:NAME to publish there.

    An existing topic is used as it is, with a warning. Exit code 4 when PREFIX belongs to another installation.

    Examples:
      iothub --data-dir ./hub stream create acme telemetry 'sensors/#'
      iothub --data-dir ./hub stream create acme commands 'devices/+/cmd' --direction in --partitions 1
    """
    row = accounts.stream_topics.created(
        app.store(),
        app.loaded.config,
        app.data_dir,
        tenant,
        name,
        topic_filter,
        direction=Direction(direction),
        partitions=partitions,
        retention_s=retention_s,
    )
    for topic in cast("list[str]", row.pop("existing_topics")):
        app.say(
            f"iothub: warning: topic {topic} exists already: the stream uses it with its messages, partitions and retention"
        )
    app.done(f"created stream {name} of tenant {tenant}: topic {row['topic']}", row)


@destroying_verb(command, "delete")
@click.argument("tenant")
@click.argument("name")
@click.option("--keep-topic", "is_kept", is_flag=True, help="Keep the topic in Kafka.")
def delete(app: App, tenant: str, name: str, is_kept: bool, is_dry_run: bool) -> None:
    """Delete a stream, its rules, and its topic with everything in it.

    Exit code 4 when the Kafka topics belong to another installation: nothing is deleted; use --keep-topic then.
    Exit code 7 when Kafka does not answer: the stream is deleted, and the message says how to delete its topic; repeat the command to see
    it again.

    Example:
      iothub --data-dir ./hub stream delete acme telemetry --keep-topic --yes
    """
    settings = app.loaded.config
    try:
        row = accounts.stream_topics.shown(app.store(), settings, tenant, name)
    except NotFoundError as error:
        if app.is_remote:
            raise
        raise NotFoundError(f"{error}{_left_over(app, tenant, name)}") from None
    what = f"stream {name}" if is_kept else f"stream {name} and topic {row['topic']} with everything in it"
    if not app.may_delete(what, row, is_dry_run=is_dry_run):
        return
    accounts.stream_topics.deleted(app.store(), settings, app.data_dir, tenant, name, is_topic_kept=is_kept)
    app.deleted(what, row)


def _left_over(app: App, tenant: str, name: str) -> str:
    """Name the topics that an earlier deletion could not delete."""
    from iothub.hub.stores.stream_drivers import no_kafka

    if no_kafka(app.loaded.config):
        return ""
    topics = stream_topics.reached(app.loaded.config)
    outward, inward = (_topic(app, tenant, name, each) for each in (Direction.OUT, Direction.IN))
    others = {topic for stream in accounts.streams.living(app.store()) for topic in topics.names(stream)}
    try:
        stream_topics.owned(app.loaded.config, app.data_dir).check()
        found = topics.there([each for each in (outward, inward, refused_topic(inward)) if each not in others])
    except UnavailableError as error:
        return f"; whether its topic remains is unknown: {error}"
    except ConflictError:  # what is there is somebody else's
        return ""
    return f"; a topic of that name remains: {stream_topics.by_hand(topics, found)}" if found else ""


def _group(app: App, stream: Stream, group: str | None) -> str | None:
    if stream.direction is Direction.OUT:
        return group
    if group is not None:
        raise ConfigError("--consumer-group is for direction out only: the hub itself reads a stream with direction in")
    from iothub_services.streams.kafka.receiver import group_of

    return group_of(app.loaded.config.kafka.topic_prefix)


def _topic(app: App, tenant: str, name: str, direction: Direction) -> str:
    """Return the topic that a stream has, or would have."""
    return topic_name(app.loaded.config.kafka.topic_prefix, tenant, name, direction)


def _row(app: App, stream: Stream) -> dict[str, object]:
    return stream_topics.row(app.loaded.config, stream)


def _of_hub(app: App, tenant: str, name: str) -> dict[str, object]:
    """Return the running hub's state of the stream and counts since its start."""
    if app.data_dir.holder() is None:
        return {"state": "no hub runs here"}
    try:
        return dict(app.ask_hub(tenant, Verb.STREAM_SHOW, {"name": name}, _ASK_TIMEOUT_S).result)
    except (UnavailableError, ConfigError, NotFoundError) as error:
        return {"state": f"unknown: {error}"}
