"""`iothub status`: does the hub run, where, and how is it?

Knows three witnesses: the lock (who holds the data directory), the hub's own notes (`hub.json`), and the hub itself, asked through
the command table and, when it is on, over HTTP.
"""

from __future__ import annotations

import http.client
import json
import time

import click

from iothub.cli.app import App, Command
from iothub.datadir import Holder
from iothub.errors import IotHubError, UnavailableError
from iothub.verbs import Verb

PING_TIMEOUT_S = 3.0
_PAGE_LIMIT_BYTES = 1 << 20


@click.command("status", cls=Command)
@click.pass_context
def command(context: click.Context) -> None:
    """Say whether the hub runs, since when, on which addresses, and whether it answers.

    Exit code 0 when it runs and answers, 7 when it does not.

    Example:
      iothub --data-dir ./hub status -o json
    """
    app: App = context.obj
    app.data_dir.require_initialised()
    holder = app.data_dir.holder()
    if holder is None:
        app.record({"name": "hub", "state": "stopped", "data_dir": str(app.data_dir.path)})
        context.exit(UnavailableError.exit_code)
    facts = _facts(app, holder)
    app.record(facts)
    if facts["state"] != "running":
        context.exit(UnavailableError.exit_code)


def _facts(app: App, holder: Holder) -> dict[str, object]:
    facts: dict[str, object] = {"name": "hub", "state": "running", "pid": holder.pid, "command": holder.command}
    facts["data_dir"] = str(app.data_dir.path)
    noted = app.data_dir.read_hub() or {}
    facts.update({name: value for name, value in noted.items() if name not in facts})
    begin = time.perf_counter()
    try:
        facts["answer"] = app.ask_hub("", Verb.PING, {}, PING_TIMEOUT_S)
        facts["answer_ms"] = round((time.perf_counter() - begin) * 1000)
    except IotHubError as error:
        facts["state"] = "not answering"
        facts["problem"] = str(error)
    address = noted.get("http")
    if isinstance(address, str) and address:
        facts.update(_over_http(address))
    return facts


def _over_http(address: str) -> dict[str, object]:
    """Read the hub's own status page and its readiness."""
    host, _, port = address.rpartition(":")
    try:
        return {"ready": _get(host, port, "/readyz"), "health": _get(host, port, "/status")}
    except (OSError, ValueError, http.client.HTTPException) as error:
        return {"ready": {"ready": False, "reasons": [f"http://{address} does not answer: {error}"]}}


def _get(host: str, port: str, path: str) -> object:
    connection = http.client.HTTPConnection(host.strip("[]"), int(port), timeout=PING_TIMEOUT_S)
    try:
        connection.request("GET", path)
        return json.loads(connection.getresponse().read(_PAGE_LIMIT_BYTES))
    finally:
        connection.close()
