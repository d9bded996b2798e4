"""`iothub trace`: record what selected clients of a tenant, or the messages of a topic, do at all running hubs.

Knows no file of a hub: `iothub.admin.tracing` puts together what the hubs report.
"""

from __future__ import annotations

import time
from typing import Any

import click

from iothub.admin import tracing
from iothub.admin.hub_rows import Row
from iothub.base.errors import ConfigError, NotFoundError
from iothub.cli import output
from iothub.cli.app import COMMAND_TIMEOUT_S, App, destroying_verb, noun, verb
from iothub.cli.durations import seconds, size_bytes
from iothub.records.admin_commands import Json, Verb

command = noun("trace", "Record what clients and messages do: start, list, show, tail, stop, download, delete.")
COLUMNS = ("name", "kind", "value", "state", "ended", "started", "kept_until", "bytes", "nodes")
_POLL_S = 0.5
_LONGEST_S = 86_400


@verb(command, "start")
@click.argument("tenant")
@click.option("--client", help="Trace the client with this client id.")
@click.option("--device", help="Trace all clients of this device.")
@click.option("--topic", metavar="FILTER", help="Trace the messages on these topics.")
@click.option("--ip", help="Trace the clients that connect from this address.")
@click.option("--for", "for_s", metavar="DURATION", default="10m", callback=seconds, help="Duration. Default: 10m.")
@click.option(
    "--max",
    "most",
    metavar="SIZE",
    default="16MiB",
    callback=size_bytes,
    help="Maximum size at each hub. Default: 16MiB.",
)
@click.option(
    "--payload",
    metavar="SIZE",
    default="0",
    callback=size_bytes,
    help="Bytes of each payload to record. Default: none.",
)
@click.option("--pings", "has_pings", is_flag=True, help="Record PINGREQ and PINGRESP.")
def start(
    app: App, tenant: str, for_s: float, most: int, payload: int, has_pings: bool, **selected: str | None
) -> None:
    """Start a trace at every running hub, and print its name. The hub must run.

    It ends by itself after its time, or when a hub's part reaches its maximum size. A hub that joins later does not take part.
    Passwords are never recorded.

    Each hub keeps a trace for 24 hours after its end, and 5 of a tenant: the oldest one that has ended makes room for a new one. `iothub trace
    download` saves it.

    Examples:
      iothub --data-dir ./hub trace start acme --client meter-7
      iothub --data-dir ./hub trace start acme --topic 'alarms/#' --for 1h --payload 256
    """
    chosen = [(kind, value) for kind, value in selected.items() if value]
    if len(chosen) != 1:
        raise click.UsageError("expected one of --client, --device, --topic and --ip")
    if not 1 <= for_s <= _LONGEST_S:
        raise ConfigError("--for: expected a duration from 1s to 24h")
    (kind, value), trace_id = chosen[0], tracing.new_id()
    argument: Row = {
        "id": trace_id,
        "kind": kind,
        "value": value,
        "for_s": int(for_s),
        "max_bytes": most,
        "payload_bytes": payload,
        "has_pings": has_pings,
    }
    result = app.ask_hub(tenant, Verb.TRACE_START, argument, COMMAND_TIMEOUT_S).result
    app.record({"name": result.get("id", trace_id), "kind": kind, "value": value, "hubs": result["hubs"]})


@verb(command, "list")
@click.argument("tenant")
def list_all(app: App, tenant: str) -> None:
    """List the traces of a tenant by start, those that have ended included. The hub must run.

    Example:
      iothub --data-dir ./hub trace list acme
    """
    app.rows(_traces(app, tenant), *COLUMNS)


@verb(command, "show")
@click.argument("tenant")
@click.argument("trace")
def show(app: App, tenant: str, trace: str) -> None:
    """Show one trace: what it selects, its limits, and which hubs have a part of it. The hub must run.

    Example:
      iothub --data-dir ./hub trace show acme t-0123456789abcdef
    """
    app.record(_found(app, tenant, trace))


@verb(command, "tail")
@click.argument("tenant")
@click.argument("trace")
def tail(app: App, tenant: str, trace: str) -> None:
    """Print the lines of a trace as they come, those of all hubs by time, until it ends or Ctrl-C. The hub must run.

    Example:
      iothub --data-dir ./hub trace tail acme t-0123456789abcdef
    """
    cursor = tracing.Cursor()
    _found(app, tenant, trace)
    while cursor.is_active or cursor.is_more:
        lines = cursor.page(trace, _asking(app, tenant))
        for line in lines:
            output.write_json_line(line)
        if not lines and cursor.is_active:
            time.sleep(_POLL_S)


@verb(command, "download")
@click.argument("tenant")
@click.argument("trace")
def download(app: App, tenant: str, trace: str) -> None:
    """Print every line of a trace, those of all hubs by time; one JSON object on each. The hub must run.

    Example:
      iothub --data-dir ./hub trace download acme t-0123456789abcdef > trace.jsonl
    """
    _found(app, tenant, trace)
    for line in tracing.Cursor().all(trace, _asking(app, tenant)):
        output.write_json_line(line)


@verb(command, "stop")
@click.argument("tenant")
@click.argument("trace")
def stop(app: App, tenant: str, trace: str) -> None:
    """End a trace at every hub; its lines stay. The hub must run.

    Example:
      iothub --data-dir ./hub trace stop acme t-0123456789abcdef
    """
    result = app.ask_hub(tenant, Verb.TRACE_STOP, {"id": trace}, COMMAND_TIMEOUT_S).result
    app.done(f"stopped trace {trace}", {"name": trace, "hubs": result["stopped"]})


@destroying_verb(command, "delete", dry_run="Show what would be deleted; delete nothing.")
@click.argument("tenant")
@click.argument("trace")
def delete(app: App, tenant: str, trace: str, is_dry_run: bool) -> None:
    """Delete the lines of a trace that has ended, at every hub. The hub must run.

    Example:
      iothub --data-dir ./hub trace delete acme t-0123456789abcdef --yes
    """
    found = _found(app, tenant, trace)
    if is_dry_run:
        app.done(f"would delete trace {trace}", {**found, "is_deleted": False})
        return
    app.confirm(f"Delete trace {trace} of tenant {tenant}?")
    app.ask_hub(tenant, Verb.TRACE_DELETE, {"id": trace}, COMMAND_TIMEOUT_S)
    app.done(f"deleted trace {trace}", {**found, "is_deleted": True})


def _traces(app: App, tenant: str) -> list[Row]:
    return tracing.traces_of(app.ask_hub(tenant, Verb.TRACE_LIST, {}, COMMAND_TIMEOUT_S).rows)


def _found(app: App, tenant: str, trace: str) -> Row:
    """Raises NotFoundError."""
    for row in _traces(app, tenant):
        if row["name"] == trace:
            return row
    raise NotFoundError(f"tenant {tenant} has no trace {trace!r}; `iothub trace list {tenant}` shows them")


def _asking(app: App, tenant: str) -> tracing.Ask:
    def ask(argument: Row) -> tuple[list[Any], Json]:
        answer = app.ask_hub(tenant, Verb.TRACE_READ, argument, COMMAND_TIMEOUT_S)
        return list(answer.rows), answer.result

    return ask
