"""`iothub explain`: what the running hubs would say to a CONNECT, PUBLISH or SUBSCRIBE, step by step, and what decides.

Knows no rule and no limit: `iothub.admin.explaining` puts together what the hubs report.
"""

from __future__ import annotations

from typing import Any, cast

import click

from iothub.admin import explaining
from iothub.base.errors import DeniedError
from iothub.cli.app import COMMAND_TIMEOUT_S, App, noun, verb
from iothub.cli.durations import size_bytes
from iothub.cli.numbers import WholeNumber
from iothub_tenants.identity import Identity, parse_username, shown

command = noun("explain", "Why a CONNECT, PUBLISH or SUBSCRIBE would be allowed or refused, step by step.")
_CLIENT_ID = "Client id. Default: the device's name."


@verb(command, "connect")
@click.argument("device", metavar="TENANT/DEVICE")
@click.option("--client-id", help=f"{_CLIENT_ID} Empty: the hub assigns one.")
@click.option("--ip", "address", default="127.0.0.1", show_default=True, help="Address that the client has.")
@click.option(
    "--listener",
    type=click.Choice(list(explaining.LISTENERS)),
    default="tcp",
    show_default=True,
    help="Kind of listener; only tls and wss ask for a certificate.",
)
@click.option("--clean/--persistent", "is_clean", default=True, help="Whether the session ends with the connection.")
@click.pass_context
def connect(
    context: click.Context, app: App, device: str, client_id: str | None, address: str, listener: str, is_clean: bool
) -> None:
    """Say whether a client of this device may connect, and which step decides. The hub must run.

    Every hub is asked. No secret is asked for and none is tested; nothing counts as an attempt. Exit code 0: allowed, 5: refused.

    Examples:
      iothub --data-dir ./hub explain connect acme/dev1 --ip 192.0.2.7
      iothub --data-dir ./hub explain connect acme/dev1 --client-id meter-7 --persistent -o json
    """
    who = _identity(device)
    asked = explaining.connect_request(who.device, client_id, address, listener, is_persistent=not is_clean)
    _print(context, app, who, asked)


@verb(command, "publish")
@click.argument("device", metavar="TENANT/DEVICE")
@click.argument("topic")
@click.option("--client-id", help=_CLIENT_ID)
@click.option("--qos", type=WholeNumber(0, 2), default=0, show_default=True, help="Quality of service.")
@click.option("--retain", "is_retained", is_flag=True, help="With RETAIN 1.")
@click.option(
    "--size", default="0", callback=size_bytes, show_default=True, help="Size of the payload, such as 512 or 64KiB."
)
@click.pass_context
def publish(
    context: click.Context,
    app: App,
    device: str,
    topic: str,
    client_id: str | None,
    qos: int,
    is_retained: bool,
    size: int,
) -> None:
    """Say whether a connected client of this device may publish to TOPIC, and which step decides. The hub must run.

    Nothing is published and no quota is used. Exit code 0: allowed, 5: refused.

    Example:
      iothub --data-dir ./hub explain publish acme/dev1 sensors/dev1/temperature --qos 1 --retain --size 2KiB
    """
    who = _identity(device)
    asked = explaining.publish_request(who.device, client_id, topic, qos, size, is_retained=is_retained)
    _print(context, app, who, asked)


@verb(command, "subscribe")
@click.argument("device", metavar="TENANT/DEVICE")
@click.argument("topic_filter", metavar="FILTER")
@click.option("--client-id", help=_CLIENT_ID)
@click.option("--qos", type=WholeNumber(0, 2), default=0, show_default=True, help="Maximum quality of service.")
@click.pass_context
def subscribe(
    context: click.Context, app: App, device: str, topic_filter: str, client_id: str | None, qos: int
) -> None:
    """Say whether a connected client of this device may subscribe to FILTER, and which step decides. The hub must run.

    Exit code 0: allowed, 5: refused.

    Example:
      iothub --data-dir ./hub explain subscribe acme/dev1 '$share/workers/jobs/#'
    """
    who = _identity(device)
    _print(context, app, who, explaining.subscribe_request(who.device, client_id, topic_filter, qos))


def _identity(text: str) -> Identity:
    """Raises UsageError."""
    found = parse_username(text)
    if found is None:
        raise click.UsageError(f"{shown(text)} names no device: expected TENANT/DEVICE, as a client's username has it")
    return found


def _print(context: click.Context, app: App, who: Identity, asked: explaining.Asked) -> None:
    answer = app.ask_hub(who.tenant, asked.verb, asked.argument, COMMAND_TIMEOUT_S)
    verdict = explaining.verdict_of(answer.rows)
    record = {"name": str(who), **verdict}
    if app.form == "table":
        hubs = cast("list[Any]", verdict["hubs"])
        deciding = cast("dict[str, object] | None", verdict["deciding"])
        record = {"name": str(who), "is_allowed": verdict["is_allowed"]}
        record["deciding"] = None if deciding is None else f"{deciding['step']}: {deciding['reason']}"
        app.record(record)
        for hub in hubs:
            nodes = ", ".join(str(node) for node in hub["nodes"])
            app.section("steps" if len(hubs) == 1 else f"steps at hub {nodes}", hub["steps"])
    else:
        app.record(record)
    app.require_all_answered()
    if not verdict["is_allowed"]:
        context.exit(DeniedError.exit_code)
