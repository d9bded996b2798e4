"""`iothub status`: does the hub run, where, and how is it?

Knows three witnesses: the lock (who holds the data directory), the hub's own notes (`hub.json`), and the hub itself, asked through
the command table and, when it is on, over HTTP.
"""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Mapping

import click

from iothub.cli.app import App, Command
from iothub.cli.content import time_of
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
    app.record(_short(facts) if app.form == "table" else facts)
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


def _short(facts: Mapping[str, object]) -> dict[str, object]:
    """Leave to a person what is worth a line; scripts get everything."""
    answer, ready = _part(facts, "answer"), _part(facts, "ready")
    shown = {
        name: value for name, value in facts.items() if name not in {"name", "command", "answer", "ready", "health"}
    }
    if isinstance(facts.get("started"), int | float):
        shown["started"] = time_of(int(float(str(facts["started"])) * 1000))
    for source in (answer, ready):
        if "ready" in source:
            shown["ready"] = source["ready"]
            shown["not ready because"] = source.get("reasons")
    shown |= {name: answer[name] for name in ("connections", "tenants") if name in answer}
    alarms = answer.get("alarms", _part(facts, "health").get("alarms"))
    if isinstance(alarms, list):
        shown["alarms"] = len(alarms)
        shown |= {f"alarm {number}": _words(alarm) for number, alarm in enumerate(alarms, 1)}
    return {name: value for name, value in shown.items() if value is not None and value != []}


def _part(facts: Mapping[str, object], name: str) -> Mapping[str, object]:
    part = facts.get(name)
    return part if isinstance(part, Mapping) else {}


def _words(alarm: Mapping[str, object]) -> str:
    subject = f" ({alarm['subject']})" if alarm.get("subject") else ""
    return f"{alarm.get('severity')}: {alarm.get('name')}{subject}: {alarm.get('detail')} - {alarm.get('advice')}"


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
