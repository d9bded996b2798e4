"""The one client of the REST API: the functions of the accounts and the requests to a hub, done by the API of another machine.

Commands do not know it: with `--context` the store and the hub of `iothub.cli.app.App` are those of here. `COMMANDS` names what works so; a
command that needs a file or a process of the hub's machine is not among them.

Theory. Two tables, each with one line for a function or a request: its method and path, and what its arguments become. Answers are the rows that
`plain` and `iothub.admin.hub_rows` have made there: `record_of` makes of them the records that the functions return here, and a row of a hub stays
`Shown`, which `hub_rows` leaves as it is.
"""

from __future__ import annotations

import inspect
import time
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from datetime import datetime
from enum import Enum
from typing import TYPE_CHECKING, Any

from iothub.base.errors import ConfigError, NotFoundError
from iothub.base.text import path_part
from iothub.cli.local_hub import Answer
from iothub.cli.remote_api import RemoteApi
from iothub.records.admin_commands import Json, Shown, Verb

if TYPE_CHECKING:
    from iothub.cli.local_hub import OnProgress, Patience

Given = Mapping[str, Any]
Row = dict[str, Any]

COMMANDS: Mapping[str, str] = {
    "tenant": "list show create update suspend resume protect unprotect delete export import",
    "device": "list show create rotate-secret set-password enable disable delete",
    "group": "list show create join leave delete",
    "acl": "list allow deny remove test",
    "ban": "list add remove",
    "quota": "list show explain set unset",
    "plan": "list show delete",
    "token-issuer": "list show remove",
    "client": "list show kick",
    "session": "list show discard",
    "queue": "list show purge",
    "retain": "list show delete",
    "explain": "connect publish subscribe",
    "alarm": "list show",
    "cluster": "status drain resume evict",
    "audit": "list",
    "admin key": "list show create rotate disable enable delete",
    "admin user": "list show create set-password disable enable delete",
}
"""The nouns, each with those of its verbs that have a counterpart in the REST API."""


def works_remotely(words: str) -> bool:
    """Whether a command, such as `tenant list`, does."""
    noun, _, verb = words.rpartition(" ")
    return words == "rejected" or verb in COMMANDS.get(noun, "").split()


def begins_remotely(words: str) -> bool:
    """Whether a command line, without `iothub`, begins with such a command; `client list acme` does."""
    parts = words.split()
    return any(works_remotely(" ".join(parts[:count])) for count in (1, 2, 3))


# --- functions of the accounts


@dataclass(frozen=True, slots=True)
class _Call:
    """How a function is done by the API. `path` has arguments in braces; `body` and `query` say what else they become."""

    method: str
    path: str
    body: Callable[[Given], object] = lambda _given: None
    query: Callable[[Given], Given] = lambda _given: {}
    made: Callable[[Any, Given], Any] = lambda answer, _given: answer
    is_list: bool = False


class RemoteStore:
    """Stands in the place of an `AccountStore`: `iothub.cli.accounts` gives it the calls of functions."""

    has_changed = False

    def __init__(self, api: RemoteApi) -> None:
        self._api = api

    def now_ms(self) -> int:
        return int(time.time() * 1000)

    def close(self) -> None:
        """Nothing is open."""

    def call(self, function: Callable[..., Any], positional: Sequence[object], named: Mapping[str, object]) -> Any:
        """Do what a function of the accounts does. Raises IotHubError, as the function."""
        name = f"{function.__module__.rpartition('.')[2]}.{function.__name__}"
        bound = inspect.signature(function).bind(self, *positional, **named)
        bound.apply_defaults()
        given = {name: value for name, value in bound.arguments.items() if value is not self}
        if name not in _OTHER and name not in _CALLS:
            raise ConfigError(f"this has no counterpart in the REST API ({name}): run the command on the hub's machine")
        kind = typing.get_type_hints(function)["return"]
        with self._api.understood():
            answer = _OTHER[name](self._api, given) if name in _OTHER else self._done(_CALLS[name], given)
            return record_of(kind, answer)

    def _done(self, call: _Call, given: Given) -> Any:
        path = _filled(call.path, given)
        if call.is_list:
            return self._api.all(path, **call.query(given))
        return call.made(self._api.call(call.method, path, call.body(given), call.query(given)), given)


def record_of(kind: Any, row: Any) -> Any:
    """Return the record that `plain` has made this row of: a dataclass, a list of them, or the row itself."""
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if row is None or kind in (Any, object):
        return row
    if origin in (typing.Union, types.UnionType):
        return record_of(next(part for part in parts if part is not type(None)), row)
    if origin in (list, tuple):
        return origin(record_of(parts[0], each) for each in row)
    if is_dataclass(kind) and isinstance(kind, type):
        return _record(kind, row)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(row)
    return row


def _record(kind: type[Any], row: Row) -> Any:
    """A field that is missing is one that nobody is shown."""
    hints = typing.get_type_hints(kind)
    values: dict[str, Any] = {}
    for each in fields(kind):
        shown = each.name.removesuffix("_ms")
        if each.name in row:
            values[each.name] = record_of(hints[each.name], row[each.name])
        elif shown != each.name and shown in row:
            values[each.name] = 0 if row[shown] is None else int(datetime.fromisoformat(row[shown]).timestamp() * 1000)
        elif each.default is MISSING and each.default_factory is MISSING:
            values[each.name] = None
    return kind(**values)


def _filled(path: str, given: Given) -> str:
    return path.format_map({name: path_part(str(value)) for name, value in given.items()})


def _chosen(*names: str) -> Callable[[Given], Row]:
    """Return those arguments that are given."""
    return lambda given: {name: given[name] for name in names if given[name] is not None}


def _get(path: str, made: Callable[[Any, Given], Any] = lambda answer, _given: answer) -> _Call:
    return _Call("GET", path, made=made)


def _list(path: str, query: Callable[[Given], Given] = lambda _given: {}) -> _Call:
    return _Call("GET", path, query=query, is_list=True)


def _act(path: str) -> _Call:
    return _Call("POST", path)


def _settings(given: Given) -> Row:
    settings = given["settings"]
    changes = {each.name: getattr(settings, each.name) for each in fields(settings)}
    return {
        name: list(value) if isinstance(value, tuple) else value for name, value in changes.items() if value is not None
    }


def _device(answer: Row, _given: Given) -> Row:
    return {"device": answer, "secret": answer.get("secret")}


def _user(answer: Row, _given: Given) -> Row:
    return {"user": answer, "password": answer.get("password")}


def _key(answer: Row, _given: Given) -> Row:
    return {"key": {name: value for name, value in answer.items() if name != "key"}, "text": answer["key"]}


def _new_device(given: Given) -> Row:
    groups = list(given["groups"])
    if given["with_token"]:
        return {"name": given["name"], "with_token": True, "groups": groups}
    return {"name": given["name"], "password": given["password"], "groups": groups}


def _new_account(given: Given) -> Row:
    """Of a key or a user: what a role must have is said here as there."""
    from iothub_tenants.accounts.roles import checked_role

    checked_role(given["role"], given["tenant"], is_user="password" in given)
    return {name: given[name] for name in ("name", "role", "tenant", "password") if given.get(name) is not None}


def _new_ban(given: Given) -> Row:
    until_ms = given["until_ms"]
    for_s = {"for_s": max(1, round(until_ms / 1000 - time.time()))} if until_ms else {}
    return {"kind": given["kind"], "value": given["value"], "reason": given["reason"], **for_s}


def _with_texts(rows: Sequence[Row]) -> list[Row]:
    """Write limits as the grammar has them."""
    return [{**row, "limits": _limits_text(row["limits"])} for row in rows]


def _limits_text(values: Mapping[str, Any]) -> str:
    from iothub.admin.limits import words_for
    from iothub_services.quota.grammar import format_limits, parse_limits

    return " ".join(format_limits(parse_limits(word)) for word in words_for(values))


def _plan(row: Row, _given: Given) -> Row:
    return {**row, "limits": _limits_text(row["limits"]), "inherited": _limits_text(row["inherited"])}


def _quotas(given: Given) -> str:
    device = given["device"]
    return _filled("/tenants/{tenant}" + ("" if device is None else "/devices/{device}"), given)


def _overrides(api: RemoteApi, given: Given) -> list[Row]:
    """All limits that are set, or those of one device."""
    rows = _with_texts(api.get(_filled("/tenants/{tenant}/quotas:all", given))["items"])
    if given.get("device") is not None:
        api.get(_filled("/tenants/{tenant}/devices/{device}", given))
        rows = [row for row in rows if row["device"] == given["device"]]
    return rows


def _own(api: RemoteApi, given: Given) -> list[Row]:
    return [row for row in _overrides(api, given) if row["device"] == (given["device"] or "")]


def _set_limits(api: RemoteApi, given: Given) -> list[Row]:
    from iothub.admin.limits import values_of
    from iothub_services.quota.grammar import format_limits, parse_limits

    limits = values_of(format_limits(parse_limits(given["limits"])))
    api.call("PATCH", _quotas(given) + "/quotas", {"limits": limits})
    return _own(api, given)


def _unset_limits(api: RemoteApi, given: Given) -> list[Row]:
    from iothub_services.quota.grammar import parse_name

    names = [parse_name(name).value for name in given["names"]]
    api.call("PATCH", _quotas(given) + "/quotas", {"limits": dict.fromkeys(names)})
    return _own(api, given)


def _effective(api: RemoteApi, given: Given) -> list[Row]:
    return _with_texts(api.get(_quotas(given) + "/quotas:effective")["items"])


def _rules(api: RemoteApi, given: Given) -> list[Row]:
    """The API lists them by number."""
    from iothub_tenants.accounts.acl_rules import AclRule, precedence

    return sorted(api.all(_filled(_RULES, given)), key=lambda row: precedence(record_of(AclRule, row)))


def _remove_rule(api: RemoteApi, given: Given) -> Row | None:
    """The API gives back no rule that is gone."""
    path = _filled("/tenants/{tenant}/acl-rules", given)
    rule = next((row for row in api.all(path) if row["id"] == given["rule_id"]), None)
    api.call("DELETE", f"{path}/{given['rule_id']}")
    return rule


def _remove_rules(api: RemoteApi, given: Given) -> list[Row]:
    path = _filled("/tenants/{tenant}/acl-rules", given)
    wanted = {"subject": given["subject"], "action": given["action"], "filter": given["topic_filter"]}
    found = [row for row in api.all(path) if wanted.items() <= row.items()]
    if not found:
        raise NotFoundError(
            f"tenant {given['tenant']} has no such rule: `iothub acl list {given['tenant']}` shows them"
        )
    for row in found:
        api.call("DELETE", f"{path}/{row['id']}")
    return found


def _audit(api: RemoteApi, given: Given) -> list[Row]:
    path = "/audit" if given["tenant"] is None else _filled("/tenants/{tenant}/audit", given)
    after = "" if given["before_id"] is None else str(given["before_id"])
    return api.page(path, given["limit"], after).rows


def _import(api: RemoteApi, given: Given) -> Row:
    name = given["name"] or _name_in(given["document"])
    query = {"dry_run": given["is_dry_run"]}
    answer = api.call("POST", f"/tenants/{path_part(name)}:import", given["document"], query)
    return {**answer, "tenant": answer}


def _name_in(document: object) -> str:
    tenant = document.get("tenant") if isinstance(document, dict) else None
    name = tenant.get("name") if isinstance(tenant, dict) else None
    if not isinstance(name, str) or not name:
        raise ConfigError("the file is no exported tenant: expected what `iothub tenant export` writes")
    return name


_TENANT, _DEVICE, _GROUP = "/tenants/{name}", "/tenants/{tenant}/devices/{name}", "/tenants/{tenant}/groups/{name}"
_MEMBER = "/tenants/{tenant}/groups/{group}/devices/{device}"
_RULES, _BANS, _ISSUER = "/tenants/{tenant}/acl-rules", "/tenants/{tenant}/bans", "/tenants/{tenant}/token-issuers"

_CALLS: Mapping[str, _Call] = {
    "tenants.list_all": _list("/tenants"),
    "tenants.show": _get(_TENANT),
    "tenants.create_tenant": _Call(
        "POST",
        "/tenants",
        lambda given: (
            {"is_closed": given["is_closed"], "display_name": given["display_name"]}
            | _chosen("name", "plan", "client_id_policy")(given)
        ),
    ),
    "tenants.update": _Call("PATCH", _TENANT, _settings),
    "tenants.suspend": _act(f"{_TENANT}:suspend"),
    "tenants.resume": _act(f"{_TENANT}:resume"),
    "tenants.protect": _act(f"{_TENANT}:protect"),
    "tenants.unprotect": _act(f"{_TENANT}:unprotect"),
    "tenants.delete": _Call(
        "DELETE", _TENANT, made=lambda answer, _given: {"tenant_id": answer["id"], "name": answer["name"]}
    ),
    "transfer.export_tenant": _act(f"{_TENANT}:export"),
    "devices.list_all": _list("/tenants/{tenant}/devices"),
    "devices.show": _get(_DEVICE),
    "devices.create": _Call("POST", "/tenants/{tenant}/devices", _new_device, made=_device),
    "devices.rotate_secret": _Call("POST", f"{_DEVICE}:rotate-secret", made=_device),
    "devices.set_password": _Call("PUT", f"{_DEVICE}/password", _chosen("password")),
    "devices.enable": _act(f"{_DEVICE}:enable"),
    "devices.disable": _act(f"{_DEVICE}:disable"),
    "devices.delete": _Call("DELETE", _DEVICE),
    "groups.list_all": _list("/tenants/{tenant}/groups"),
    "groups.show": _get(_GROUP),
    "groups.create": _Call("POST", "/tenants/{tenant}/groups", _chosen("name")),
    "groups.delete": _Call("DELETE", _GROUP),
    "groups.join": _Call("PUT", _MEMBER),
    "groups.leave": _Call("DELETE", _MEMBER),
    "acl_rules.list_applying": _list(_RULES, _chosen("subject")),
    "acl_rules.allow": _Call(
        "POST",
        _RULES,
        lambda given: _chosen("subject", "action")(given) | {"effect": "allow", "filter": given["topic_filter"]},
    ),
    "acl_rules.deny": _Call(
        "POST",
        _RULES,
        lambda given: _chosen("subject", "action")(given) | {"effect": "deny", "filter": given["topic_filter"]},
    ),
    "verdicts.verdict": _Call(
        "GET", "/tenants/{tenant}/acl:test", query=_chosen("device", "action", "topic", "client_id")
    ),
    "bans.list_all": _list(_BANS),
    "bans.add": _Call("POST", _BANS, _new_ban),
    "bans.remove": _Call("DELETE", _BANS, query=_chosen("kind", "value")),
    "plans.show": _get("/plans/{name}", _plan),
    "plans.delete": _Call("DELETE", "/plans/{name}"),
    "token_issuers.list_all": _list(_ISSUER),
    "token_issuers.show": _get(f"{_ISSUER}/{{name}}"),
    "token_issuers.remove": _Call("DELETE", f"{_ISSUER}/{{name}}"),
    "streams.list_all": _list("/tenants/{tenant}/streams"),
    "api_keys.list_all": _list("/api-keys"),
    "api_keys.show": _get("/api-keys/{name}"),
    "api_keys.create": _Call("POST", "/api-keys", _new_account, made=_key),
    "api_keys.rotate": _Call("POST", "/api-keys/{name}:rotate", made=_key),
    "api_keys.enable": _act("/api-keys/{name}:enable"),
    "api_keys.disable": _act("/api-keys/{name}:disable"),
    "api_keys.remove": _Call("DELETE", "/api-keys/{name}"),
    "users.list_all": _list("/users"),
    "users.show": _get("/users/{name}"),
    "users.create": _Call("POST", "/users", _new_account, made=_user),
    "users.set_password": _Call("POST", "/users/{name}:set-password", _chosen("password"), made=_user),
    "users.enable": _act("/users/{name}:enable"),
    "users.disable": _act("/users/{name}:disable"),
    "users.remove": _Call("DELETE", "/users/{name}"),
}

_OTHER: Mapping[str, Callable[[RemoteApi, Given], Any]] = {
    "acl_rules.list_all": _rules,
    "acl_rules.remove": _remove_rule,
    "acl_rules.remove_matching": _remove_rules,
    "audit.page": _audit,
    "plans.list_all": lambda api, given: [_plan(row, given) for row in api.all("/plans")],
    "quotas.effective": _effective,
    "quotas.list_all": _overrides,
    "quotas.set_limits": _set_limits,
    "quotas.unset": _unset_limits,
    "transfer.import_tenant": _import,
}
"""Functions that take more than one request, or whose arguments are not the API's."""


# --- requests to a hub


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

    def change(
        self, verb: Verb, tenant: str, argument: Json, _patience: Patience, _on_progress: OnProgress | None = None
    ) -> Json:
        return self.ask(verb, tenant, argument).result


_Asking = Callable[[RemoteApi, Given], Answer]


def _listing(path: str, *names: str) -> _Asking:
    """A list with pages. `names`: other arguments that the query takes."""

    def ask(api: RemoteApi, given: Given) -> Answer:
        page = api.page(_filled(path, given), given["limit"], given["after"], **{name: given[name] for name in names})
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
        found = api.call(method, _filled(path, given), sent, {name: given[name] for name in query}) or {}
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
    path = _filled("{client_id}", given)
    tenant = _filled("/tenants/{tenant}", given)
    reported = api.get(f"{tenant}/queues/{path}")
    count = given["messages"]
    oldest = api.get(f"{tenant}/queued-messages/{path}", limit=count)["items"] if count else []
    reported["limits"] = Shown(reported["limits"])
    return Answer([Shown(row) for row in oldest], Shown(reported))


def _retained(api: RemoteApi, given: Given) -> Answer:
    row = api.get(_filled("/tenants/{tenant}/retained/{topic}", given))
    described = {name: value for name, value in row.items() if name not in ("name", "version")}
    return Answer([Shown(described)], {"version": row["version"]})


def _rejected(api: RemoteApi, given: Given) -> Answer:
    path = "/rejected" if given["is_unknown"] else _filled("/tenants/{tenant}/rejected", given)
    return Answer([Shown(row) for row in api.get(path)["items"]], {})


def _failure_bans(api: RemoteApi, given: Given) -> Answer:
    rows = api.get(_filled("/tenants/{tenant}/failure-bans", given))["items"]
    return Answer([Shown(row) for row in rows], {"left_out": 0, "reason": ""})


def _explained(what: str, *names: str) -> _Asking:
    def ask(api: RemoteApi, given: Given) -> Answer:
        body = {name: given[name] for name in names}
        if "has_certificate" in given:
            body["listener"] = "tls" if given["has_certificate"] else "tcp"
        verdict = api.call("POST", _filled(f"/tenants/{{tenant}}/explain:{what}", given), body)
        rows: list[Json] = [
            {"node": node, **step} for hub in verdict["hubs"] for node in hub["nodes"] for step in hub["steps"]
        ]
        return Answer(rows, _noted({}, verdict["unanswered"]))

    return ask


_CLIENT, _SESSION = "/tenants/{tenant}/clients/{client_id}", "/tenants/{tenant}/sessions/{client_id}"
_RETAINED = "/tenants/{tenant}/retained"

_VERBS: Mapping[str, _Asking] = {
    Verb.CLIENT_LIST: _listing("/tenants/{tenant}/clients"),
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
        [], api.call("DELETE", _filled(_RETAINED, given), None, {"filter": given["filter"], "dry_run": True})
    ),
    Verb.RETAIN_SHOW: _retained,
    Verb.RETAIN_DELETE: _showing(_RETAINED, "DELETE", query=("filter",)),
    Verb.REJECTED_LIST: _rejected,
    Verb.BAN_LIST: _failure_bans,
    Verb.BAN_LIFT: _showing("/tenants/{tenant}/failure-bans/{device}", "DELETE", query=("address",)),
    Verb.ALARM_LIST: _showing("/alarms", rows="items"),
    Verb.CLUSTER_STATUS: _showing("/nodes", rows="items"),
    Verb.CLUSTER_DRAIN: _showing("/nodes/{node}:drain", "POST", body=("rate_per_s",)),
    Verb.CLUSTER_RESUME: _showing("/nodes/{node}:resume", "POST"),
    Verb.CLUSTER_EVICT: _showing("/nodes/{node}:evict", "POST"),
    Verb.EXPLAIN_CONNECT: _explained("connect", "device", "client_id", "address", "is_persistent"),
    Verb.EXPLAIN_PUBLISH: _explained("publish", "device", "client_id", "topic", "qos", "size", "is_retained"),
    Verb.EXPLAIN_SUBSCRIBE: _explained("subscribe", "device", "client_id", "filter", "qos"),
}
