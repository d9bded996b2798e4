"""The requests to a hub, done by the REST API of another machine: each with its path, and what its arguments become.

A row of a hub stays `Shown`, which the functions of `iothub.admin` leave as it is. Knows no function of the accounts: `iothub.cli.remote` does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from iothub.admin.tracing import text_of
from iothub.base.errors import ConfigError
from iothub.cli.local_hub import Answer
from iothub.cli.remote_api import Given, RemoteApi, Row, filled
from iothub.records.admin_commands import Json, Shown, Verb

if TYPE_CHECKING:
    from iothub.cli.local_hub import OnProgress, Patience


class RemoteHub:
    """Stands in the place of a `LocalHub`."""

    def __init__(self, api: RemoteApi) -> None:
        self._api = api

    def require(self) -> None:
        """Whether a hub runs there, the request itself says."""

    def ask(self, verb: Verb, tenant: str, argument: Json, _silence_s: float = 0.0) -> Answer:
        """Raises IotHubError, as the hub."""
        if verb not in _VERBS:
            raise ConfigError(f"this has no counterpart in the REST API ({verb}): run the command on the hub's machine")
        with self._api.understood():
            return _VERBS[verb](self._api, {"tenant": tenant, **argument})

    def ask_workers(self, verb: Verb) -> list[Answer]:
        """Ask each worker of the hub there; all say the same, once."""
        return [self.ask(verb, "", {})]

    def change(
        self, verb: Verb, tenant: str, argument: Json, _patience: Patience, _on_progress: OnProgress | None = None
    ) -> Json:
        return self.ask(verb, tenant, argument).result


_Asking = Callable[[RemoteApi, Given], Answer]


def _listing(path: str, *names: str) -> _Asking:
    """A list with pages. `names`: other arguments that the query takes."""

    def ask(api: RemoteApi, given: Given) -> Answer:
        page = api.page(filled(path, given), given["limit"], given["after"], **{name: given[name] for name in names})
        return Answer([Shown(row) for row in page.rows], _noted({"next": page.next}, page.unanswered))

    return ask


def _queues(api: RemoteApi, given: Given) -> Answer:
    found = _listing("/tenants/{tenant}/queues")(api, given)
    return Answer([Shown(row, client_id=row["name"]) for row in found.rows], found.result)


def _showing(
    path: str, method: str = "GET", *, rows: str = "", body: Sequence[str] = (), query: Sequence[str] = ()
) -> _Asking:
    """One object. `rows`: its field that has the rows."""

    def ask(api: RemoteApi, given: Given) -> Answer:
        sent = {name: given[name] for name in body} or None
        found = api.call(method, filled(path, given), sent, {name: given[name] for name in query}) or {}
        listed = [Shown(row) for row in found[rows]] if rows else []
        if rows:
            found[rows] = len(listed)
        return Answer(list(listed), _noted(Shown(found), found.pop("unanswered", ())))

    return ask


def _noted(result: Row, unanswered: Sequence[str]) -> Row:
    if unanswered:
        result["unanswered"] = list(unanswered)
    return result


def _queue(api: RemoteApi, given: Given) -> Answer:
    path = filled("{client_id}", given)
    tenant = filled("/tenants/{tenant}", given)
    reported = api.get(f"{tenant}/queues/{path}")
    count = given["messages"]
    oldest = api.get(f"{tenant}/queued-messages/{path}", limit=count)["items"] if count else []
    reported["limits"] = Shown(reported["limits"])
    return Answer([Shown(row) for row in oldest], Shown(reported))


def _retained(api: RemoteApi, given: Given) -> Answer:
    row = api.get(filled("/tenants/{tenant}/retained/{topic}", given))
    described = {name: value for name, value in row.items() if name not in ("name", "version")}
    return Answer([Shown(described)], {"version": row["version"]})


def _rejected(api: RemoteApi, given: Given) -> Answer:
    path = "/rejected" if given["is_unknown"] else filled("/tenants/{tenant}/rejected", given)
    return Answer([Shown(row) for row in api.get(path)["items"]], {})


def _failure_bans(api: RemoteApi, given: Given) -> Answer:
    rows = api.get(filled("/tenants/{tenant}/failure-bans", given))["items"]
    return Answer([Shown(row) for row in rows], {"left_out": 0, "reason": ""})


def _explained(what: str, *names: str) -> _Asking:
    def ask(api: RemoteApi, given: Given) -> Answer:
        body = {name: given[name] for name in names}
        if "has_certificate" in given:
            body["listener"] = "tls" if given["has_certificate"] else "tcp"
        verdict = api.call("POST", filled(f"/tenants/{{tenant}}/explain:{what}", given), body)
        rows: list[Json] = [
            {"node": node, **step} for hub in verdict["hubs"] for node in hub["nodes"] for step in hub["steps"]
        ]
        return Answer(rows, _noted({}, verdict["unanswered"]))

    return ask


def _start_trace(api: RemoteApi, given: Given) -> Answer:
    """The API names it."""
    names = ("kind", "value", "for_s", "max_bytes", "payload_bytes", "has_pings")
    made = api.call("POST", filled(_TRACES, given), {name: given[name] for name in names})
    return Answer([], {"hubs": made["hubs"], "id": made["name"]})


def _read_trace(api: RemoteApi, given: Given) -> Answer:
    """The API has put the lines of all hubs in order."""
    found = api.get(filled(f"{_TRACE}/log", given), after=text_of(given["offsets"]), limit=given["lines"])
    return Answer([Shown(row) for row in found["items"]], {"active": found["is_active"], "next": found["next"]})


def _reload(api: RemoteApi, _given: Given) -> Answer:
    found = api.call("POST", "/config:reload")
    return Answer(found["changed"], {"warnings": found["warnings"], "certificates": found["certificates"]})


def _status(api: RemoteApi, _given: Given) -> Answer:
    return Answer([], Shown(api.get("/status")["hub"]))


_CLIENT, _SESSION = "/tenants/{tenant}/clients/{client_id}", "/tenants/{tenant}/sessions/{client_id}"
_RETAINED = "/tenants/{tenant}/retained"
_TRACES, _TRACE = "/tenants/{tenant}/traces", "/tenants/{tenant}/traces/{id}"

_VERBS: Mapping[str, _Asking] = {
    Verb.CLIENT_LIST: _listing("/tenants/{tenant}/clients"),
    Verb.CLIENT_TOP: _showing("/tenants/{tenant}/clients:top", rows="items", query=("by", "limit")),
    Verb.CLIENT_SHOW: _showing(_CLIENT, rows="subscriptions"),
    Verb.CLIENT_KICK: _showing(f"{_CLIENT}:kick", "POST"),
    Verb.SESSION_LIST: _listing("/tenants/{tenant}/sessions"),
    Verb.SESSION_SHOW: _showing(_SESSION, rows="subscriptions"),
    Verb.SESSION_DISCARD: _showing(_SESSION, "DELETE"),
    Verb.QUEUE_LIST: _queues,
    Verb.QUEUE_SHOW: _queue,
    Verb.QUEUE_PURGE: _showing("/tenants/{tenant}/queued-messages/{client_id}", "DELETE"),
    Verb.RETAIN_LIST: _listing(_RETAINED, "filter"),
    Verb.RETAIN_COUNT: lambda api, given: Answer(
        [], api.call("DELETE", filled(_RETAINED, given), None, {"filter": given["filter"], "dry_run": True})
    ),
    Verb.RETAIN_SHOW: _retained,
    Verb.RETAIN_DELETE: _showing(_RETAINED, "DELETE", query=("filter",)),
    Verb.REJECTED_LIST: _rejected,
    Verb.BAN_LIST: _failure_bans,
    Verb.BAN_LIFT: _showing("/tenants/{tenant}/failure-bans/{device}", "DELETE", query=("address",)),
    Verb.TRACE_START: _start_trace,
    Verb.TRACE_LIST: _showing(_TRACES, rows="items"),
    Verb.TRACE_READ: _read_trace,
    Verb.TRACE_STOP: lambda api, given: Answer(
        [], {"stopped": api.call("POST", filled(f"{_TRACE}:stop", given))["hubs"]}
    ),
    Verb.TRACE_DELETE: _showing(_TRACE, "DELETE"),
    Verb.STATUS: _status,
    Verb.CONFIG_RELOAD: _reload,
    Verb.ALARM_LIST: _showing("/alarms", rows="items"),
    Verb.CLUSTER_STATUS: _showing("/nodes", rows="items"),
    Verb.CLUSTER_DRAIN: _showing("/nodes/{node}:drain", "POST", body=("rate_per_s",)),
    Verb.CLUSTER_RESUME: _showing("/nodes/{node}:resume", "POST"),
    Verb.CLUSTER_EVICT: _showing("/nodes/{node}:evict", "POST"),
    Verb.EXPLAIN_CONNECT: _explained("connect", "device", "client_id", "address", "is_persistent"),
    Verb.EXPLAIN_PUBLISH: _explained("publish", "device", "client_id", "topic", "qos", "size", "is_retained"),
    Verb.EXPLAIN_SUBSCRIBE: _explained("subscribe", "device", "client_id", "filter", "qos"),
}
