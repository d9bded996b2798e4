"""`iothub status`: whether the hub runs, where, and its health.

Has four sources: the lock (who holds the data directory), the hub's file `hub.json`, the accounts, and the hub itself, asked over its local
socket and, when it is on, over HTTP.
"""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Mapping

import click

from iothub.admin.content import time_of
from iothub.base.errors import IotHubError, UnavailableError
from iothub.cli import accounts
from iothub.cli.app import App, Command
from iothub.cli.local_hub import why_starting
from iothub.config.datadir import Holder
from iothub.records.admin_commands import Verb

PING_TIMEOUT_S = 3.0
ACCOUNTS_TIMEOUT_S = 2.0  # on a server: a status must not wait long for a server that is down
_PAGE_LIMIT_BYTES = 1 << 20
_NOT_ACROSS_WORKERS = "$SYS topics of tenants: each worker has its own"
_NOT_ACROSS_HUBS = ("$SYS topics and metrics: each hub has its own",)
_QUOTAS_NOT_ACROSS_HUBS = 'quotas and rates: each hub counts by itself; quota.ledger = "redis" shares them'


@click.command("status", cls=Command)
@click.pass_context
def command(context: click.Context) -> None:
    """Show whether the hub runs and answers, since when, its addresses and alarms.

    With several workers, connections and alarms are those of all; each worker has a line with its node number and its state.

    While other hubs share the stores, `not across hubs` lists what clients of one hub do not get from another.

    `tenants` counts the tenants of the accounts; loaded are those with a connection, a session or a message on this hub.

    The state is `starting` while the hub waits for back ends, with their names. If the accounts are on a server that does not answer, the
    command waits some seconds for it, and `problem` says so.

    Exit code 0 when the hub runs and answers, else 7. With a context it is the hub beside the API.

    Example:
      iothub --data-dir ./hub status -o json
    """
    app: App = context.obj
    if app.is_remote:
        facts = _facts_there(app)
        app.record(_for_people(facts) if app.form == "table" else facts)
        return
    app.data_dir.require_initialised()
    holder = app.data_dir.holder()
    if holder is None:
        app.record({"name": "hub", "state": "stopped", "data_dir": str(app.data_dir.path)})
        context.exit(UnavailableError.exit_code)
    facts = facts_of(app, holder)
    app.record(_for_people(facts) if app.form == "table" else facts)
    if facts["state"] != "running":
        context.exit(UnavailableError.exit_code)


def facts_of(app: App, holder: Holder) -> dict[str, object]:
    """Return what the sources say, each fact once; `ready`, `reasons` and `alarms` are None if the hub does not answer."""
    facts: dict[str, object] = {"name": "hub", "state": "running", "pid": holder.pid, "command": holder.command}
    facts["data_dir"] = str(app.data_dir.path)
    noted = app.data_dir.read_hub() or {}
    starting = why_starting(app.data_dir) if noted.pop("starting", None) else ""
    facts.update({name: value for name, value in noted.items() if name not in facts})
    facts["started"] = _iso(noted.get("started"))
    count, trouble = _tenants(app)
    answer = _ask(app, facts)  # also while workers start: one that serves makes the hub ready
    address = noted.get("http")
    readiness, page = _over_http(address) if isinstance(address, str) and address else ({}, {})
    if starting and not answer:
        facts.pop("problem", None)
        facts["state"] = "starting"
        answer = {"ready": False, "reasons": [starting]}
    elif page and not answer:
        facts["state"] = "answering over HTTP alone"
    reported = {**page, **answer, **readiness}
    facts |= _reported(reported, count, _not_across_hubs(app, reported))
    if trouble:
        silence = f"{facts['problem']}; " if "problem" in facts else ""
        facts["problem"] = f"{silence}{trouble}; not read: tenants"
    if page:
        facts["health"] = {name: value for name, value in page.items() if name not in {*facts, "connections"}}
    return facts


def _facts_there(app: App) -> dict[str, object]:
    """Return what the hub of a context says. Raises UnavailableError: none runs there."""
    reported = app.hub.ask(Verb.STATUS, "", {}, PING_TIMEOUT_S).result
    count = accounts.tenants.count(app.store())
    return {"name": "hub", "state": "running", **_reported(reported, count, [])}


def _reported(reported: Mapping[str, object], count: int | None, not_across: list[str]) -> dict[str, object]:
    """Return what a hub says of itself. `count`: of the tenants."""
    facts = {name: reported.get(name) for name in ("node", "other_hubs", "links", "quota", "ready", "reasons")}
    facts |= {
        "connections": _used(reported.get("connections")),
        "connections_limit": _limit(reported),
        "tenants": count,
        "loaded_tenants": reported.get("tenants"),
    }
    if reported.get("worker_states"):
        facts["worker_states"] = reported["worker_states"]
    facts["not_across_hubs"] = not_across
    facts["alarms"] = [_alarm(alarm) for alarm in _list(reported["alarms"])] if "alarms" in reported else None
    return facts


def _tenants(app: App) -> tuple[int | None, str]:
    """Count the tenants of the accounts; if these cannot be read, None and the reason."""
    from iothub_tenants.accounts import tenants

    app.patience_s = ACCOUNTS_TIMEOUT_S
    try:
        return tenants.count(app.store()), ""
    except IotHubError as error:
        return None, str(error)


def _ask(app: App, facts: dict[str, object]) -> Mapping[str, object]:
    """Return the hub's answer, or record why there is none."""
    began = time.perf_counter()
    try:
        answer = app.hub.ask(Verb.STATUS, "", {}, PING_TIMEOUT_S).result
    except IotHubError as error:
        facts |= {"state": "not answering", "problem": str(error)}
        return {}
    facts["answer_ms"] = round((time.perf_counter() - began) * 1000)
    return answer


def _not_across_hubs(app: App, reported: Mapping[str, object]) -> list[str]:
    """Return what clients of one hub or worker do not get from another; nothing while there is no other one."""
    if not reported.get("other_hubs"):
        return [_NOT_ACROSS_WORKERS] if reported.get("worker_states") else []
    missing = [*_NOT_ACROSS_HUBS]
    if app.loaded.config.quota.ledger != "redis":
        missing.append(_QUOTAS_NOT_ACROSS_HUBS)
    return missing


def _used(connections: object) -> object:
    """The page of HTTP has their limit beside it."""
    return connections.get("used") if isinstance(connections, Mapping) else connections


def _limit(reported: Mapping[str, object]) -> object:
    connections = reported.get("connections")
    return connections.get("limit") if isinstance(connections, Mapping) else reported.get("connections_limit")


def _for_people(facts: Mapping[str, object]) -> dict[str, object]:
    """Select what is worth a line in a table; the other formats have everything."""
    hidden = {"name", "command", "reasons", "alarms", "health", "worker_states"}
    shown = {name: value for name, value in facts.items() if name not in hidden}
    if (limit := shown.pop("connections_limit", None)) is not None:
        shown["connections"] = f"{shown['connections']} of {limit}"
    others, loaded = shown.pop("other_hubs", None), shown.pop("loaded_tenants", None)
    if loaded is not None:
        shown["tenants"] = f"{'?' if shown['tenants'] is None else shown['tenants']}, {loaded} of them loaded"
    shown["other hubs"] = [f"node {number}" for number in others] if isinstance(others, list) else None
    links, missing = shown.pop("links", None), shown.pop("not_across_hubs", None)
    shown["links"] = f"{links['up']} of {links['hubs']} up" if isinstance(links, Mapping) else None
    shown |= {f"not across hubs {number}": what for number, what in enumerate(_texts(missing), 1)}
    shown |= {f"worker {each['worker']}": _worker(each) for each in _list(facts.get("worker_states"))}
    shown["not ready because"] = facts.get("reasons")
    alarms = _list(facts["alarms"])
    shown["alarms"] = None if facts["alarms"] is None else len(alarms)
    shown |= {f"alarm {number}": _words(alarm) for number, alarm in enumerate(alarms, 1)}
    return {name: value for name, value in shown.items() if value is not None and value != []}


def _worker(state: Mapping[str, object]) -> str:
    why = "; ".join(_texts(state.get("reasons")))
    connections = state.get("connections")
    clients = "" if connections is None else f", {connections} connections"
    return f"node {state['node']}, {state['state']}{clients}{f': {why}' if why else ''}"


def _texts(texts: object) -> list[str]:
    return [str(text) for text in texts] if isinstance(texts, list) else []


def _list(alarms: object) -> list[Mapping[str, object]]:
    return [alarm for alarm in alarms if isinstance(alarm, Mapping)] if isinstance(alarms, list) else []


def _alarm(alarm: Mapping[str, object]) -> Mapping[str, object]:
    return {**alarm, "since": _iso(alarm.get("since"))}


def _iso(seconds: object) -> str | None:
    return time_of(int(seconds * 1000)) if isinstance(seconds, int | float) else None


def _words(alarm: Mapping[str, object]) -> str:
    subject = f" ({alarm['subject']})" if alarm.get("subject") else ""
    return f"{alarm.get('severity')}: {alarm.get('name')}{subject}: {alarm.get('detail')} - {alarm.get('advice')}"


def _over_http(address: str) -> tuple[Mapping[str, object], Mapping[str, object]]:
    """Read the hub's own readiness and its status page."""
    host, _, port = address.rpartition(":")
    try:
        return _get(host, port, "/readyz"), _get(host, port, "/status")
    except (OSError, ValueError, http.client.HTTPException) as error:
        return {"ready": False, "reasons": [f"http://{address} does not answer: {error}"]}, {}


def _get(host: str, port: str, path: str) -> Mapping[str, object]:
    page = json.loads(_read(host, port, path, _PAGE_LIMIT_BYTES))
    return page if isinstance(page, dict) else {}


def read_page(address: str, path: str, limit_bytes: int) -> bytes:
    """Return a page of the hub's HTTP port. Raises UnavailableError."""
    host, _, port = address.rpartition(":")
    try:
        return _read(host, port, path, limit_bytes)
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise UnavailableError(f"http://{address} does not answer: {error}") from None


def _read(host: str, port: str, path: str, limit_bytes: int) -> bytes:
    connection = http.client.HTTPConnection(host.strip("[]"), int(port), timeout=PING_TIMEOUT_S)
    try:
        connection.request("GET", path)
        return connection.getresponse().read(limit_bytes)
    finally:
        connection.close()
