"""The one client of the REST API: the functions of the accounts and the requests to a hub, done by the API of another machine.

Commands do not know it: with `--context` the store and the hub of `iothub.cli.app.App` are those of here. `iothub.cli.remote_commands` names
what works so.

Theory. Two tables, each with one line for a function or a request: its method and path, and what its arguments become. Answers are the rows that
`plain` and `iothub.admin.hub_rows` have made there: `record_of` makes of them the records that the functions return here, and a row of a hub stays
`Shown`, which `hub_rows` leaves as it is.
"""

from __future__ import annotations

import inspect
import json
import time
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import TYPE_CHECKING, Any

from iothub.base.errors import ConfigError, InterruptedWorkError, NotFoundError
from iothub.base.text import path_part
from iothub.cli.remote_api import Given, RemoteApi, Row, filled
from iothub.records.admin_commands import Shown

if TYPE_CHECKING:
    from iothub.admin.apply_steps import Step
    from iothub.doctor.findings import Finding


@dataclass(frozen=True, slots=True)
class _Call:
    """How a function is done by the API. `path` has arguments in braces; `body` and `query` say what else they become."""

    method: str
    path: str
    body: Callable[[Given], object] = lambda _given: None
    query: Callable[[Given], Given] = lambda _given: {}
    made: Callable[[Any, Given], Any] = lambda answer, _given: answer
    is_list: bool = False


_Doing = Callable[[RemoteApi, Given], Any]


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
        kind = _returned(function)
        with self._api.understood():
            answer = _OTHER[name](self._api, given) if name in _OTHER else self._done(_CALLS[name], given)
            return record_of(kind, answer)

    def _done(self, call: _Call, given: Given) -> Any:
        path = filled(call.path, given)
        if call.is_list:
            return self._api.all(path, **call.query(given))
        return call.made(self._api.call(call.method, path, call.body(given), call.query(given)), given)


def _returned(function: Callable[..., Any]) -> Any:
    """Return the kind of what a function returns; Any: its module loads that for type checks alone, and a row is returned as it came."""
    of_return = types.SimpleNamespace(__annotations__={"return": function.__annotations__["return"]})
    try:
        return typing.get_type_hints(of_return, getattr(function, "__globals__", {}))["return"]
    except NameError:
        return Any


def record_of(kind: Any, row: Any) -> Any:
    """Return the record that `plain` has made this row of: a dataclass, a list of them, or the row itself."""
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if row is None or kind in (Any, object) or isinstance(row, Shown) or is_dataclass(row):
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
            values[each.name] = _milliseconds(row[shown], is_optional=type(None) in typing.get_args(hints[each.name]))
        elif each.default is MISSING and each.default_factory is MISSING:
            values[each.name] = None
    return kind(**values)


def _milliseconds(shown: str | None, *, is_optional: bool) -> int | None:
    if shown is None:
        return None if is_optional else 0
    return int(datetime.fromisoformat(shown).timestamp() * 1000)


def _chosen(*names: str) -> Callable[[Given], Row]:
    """Return those arguments that are given."""
    return lambda given: {name: given[name] for name in names if given[name] is not None}


def _get(path: str, made: Callable[[Any, Given], Any] = lambda answer, _given: answer) -> _Call:
    return _Call("GET", path, made=made)


def _list(path: str, query: Callable[[Given], Given] = lambda _given: {}) -> _Call:
    return _Call("GET", path, query=query, is_list=True)


def _page(path: str) -> _Doing:
    return lambda api, given: api.page(filled(path, given), given["limit"], given["after"]).rows


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
    return filled("/tenants/{tenant}" + ("" if device is None else "/devices/{device}"), given)


def _overrides(api: RemoteApi, given: Given) -> list[Row]:
    """All limits that are set, or those of one device."""
    rows = _with_texts(api.get(filled("/tenants/{tenant}/quotas:all", given))["items"])
    if given.get("device") is not None:
        api.get(filled("/tenants/{tenant}/devices/{device}", given))
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

    return sorted(api.all(filled(_RULES, given)), key=lambda row: precedence(record_of(AclRule, row)))


def _remove_rule(api: RemoteApi, given: Given) -> Row | None:
    """The API gives back no rule that is gone."""
    path = filled("/tenants/{tenant}/acl-rules", given)
    rule = next((row for row in api.all(path) if row["id"] == given["rule_id"]), None)
    api.call("DELETE", f"{path}/{given['rule_id']}")
    return rule


def _remove_rules(api: RemoteApi, given: Given) -> list[Row]:
    path = filled("/tenants/{tenant}/acl-rules", given)
    wanted = {"subject": given["subject"], "action": given["action"], "filter": given["topic_filter"]}
    found = [row for row in api.all(path) if wanted.items() <= row.items()]
    if not found:
        raise NotFoundError(
            f"tenant {given['tenant']} has no such rule: `iothub acl list {given['tenant']}` shows them"
        )
    for row in found:
        api.call("DELETE", f"{path}/{row['id']}")
    return found


def _import_rules(api: RemoteApi, given: Given) -> Row:
    query = {"from": given["form"], "dry_run": given["is_dry_run"]}
    answer = api.post_csv(filled(f"{_RULES}:import", given), "".join(given["lines"]), query)
    return {"added": answer["rules"], "present": answer["rules_there_already"]}


def _audit(api: RemoteApi, given: Given) -> list[Row]:
    path = "/audit" if given["tenant"] is None else filled("/tenants/{tenant}/audit", given)
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


def _webhook(method: str, end: str = "", made: Callable[[Any], Any] = lambda answer: answer) -> _Doing:
    def do(api: RemoteApi, given: Given) -> Any:
        return made(api.call(method, _webhooks(given) + filled(f"/{{name}}{end}", given)))

    return do


def _webhooks(given: Given) -> str:
    return filled("/webhooks" if given["tenant"] is None else "/tenants/{tenant}/webhooks", given)


def _with_secret(answer: Row) -> Row:
    return {"webhook": answer, "secret": answer["secret"]}


def _new_webhook(api: RemoteApi, given: Given) -> Row:
    body = {"name": given["name"], "url": given["url"], "events": list(given["events"])}
    return _with_secret(api.call("POST", _webhooks(given), body))


def _change_webhook(api: RemoteApi, given: Given) -> Row:
    changes: Any = given["changes"]
    events = None if changes.events is None else list(changes.events)
    body = {"url": changes.url, "events": events, "is_enabled": changes.is_enabled}
    path = _webhooks(given) + filled("/{name}", given)
    return dict(api.call("PATCH", path, {name: value for name, value in body.items() if value is not None}))


def _new_plan(api: RemoteApi, given: Given) -> Row:
    body = {"name": given["name"], "parent": given["parent"], "limits": _values(given["limits"])}
    weight = {} if given["weight"] is None else {"weight": given["weight"]}
    return _plan(api.call("POST", "/plans", body | weight), given)


def _change_plan(api: RemoteApi, given: Given) -> Row:
    removed = dict.fromkeys(given.get("without") or given.get("quotas") or ())
    body: Row = {name: given[name] for name in ("parent", "weight") if given.get(name) is not None}
    if limits := {**_values(given.get("limits", ())), **removed}:
        body["limits"] = limits
    return _plan(api.call("PATCH", filled("/plans/{name}", given), body), given)


def _values(limits: Any) -> Row:
    from iothub.admin.limits import values_of
    from iothub_services.quota.grammar import format_limits, parse_limits

    return dict(values_of(format_limits(parse_limits(limits)))) if limits else {}


def _issuer(given: Given) -> Row:
    wanted = given["given"]
    return {each.name: value for each in fields(wanted) if (value := getattr(wanted, each.name)) is not None}


def _new_stream(given: Given) -> Row:
    body = {"name": given["name"], "filter": given["topic_filter"], "direction": given["direction"].value}
    return body | _chosen("partitions", "retention_s")(given)


def _usage(api: RemoteApi, given: Given) -> list[Row]:
    return list(_asked_usage(api, given, given["by"])["items"])


def _asked_usage(api: RemoteApi, given: Given, by: str) -> Any:
    since, until = (
        None if given.get(name) is None else datetime.fromtimestamp(given[name] / 1000, UTC).isoformat()
        for name in ("since_ms", "until_ms")
    )
    query = {"from": since, "to": until, "by": by}
    return api.call("GET", filled("/tenants/{tenant}/usage", given), None, query)


def _no_usage(api: RemoteApi, given: Given) -> str:
    """Of a period that is over before the first hub."""
    return str(_asked_usage(api, {**given, "since_ms": 0, "until_ms": 1}, "total").get("reason", "no usage"))


def _runs(api: RemoteApi, given: Given) -> list[Row]:
    path = "/runs" if given["job"] is None else filled("/jobs/{job}/runs", given)
    return list(api.get(path, limit=given["limit"])["items"])


def _columns(api: RemoteApi, names: str) -> list[Row]:
    return [{name: row[name] for name in names.split()} for row in api.get("/jobs")["items"]]


def _start(api: RemoteApi, given: Given) -> Shown:
    asked: Any = given["given"]
    options = dict(each.partition("=")[::2] for each in asked.options)
    body = {"is_full": asked.is_full, "is_dry_run": asked.is_dry_run, "options": options}
    return Shown(api.call("POST", filled("/jobs/{job}:run", given), body))


def _findings(api: RemoteApi, _given: Given) -> list[Finding]:
    from iothub.doctor.findings import Finding, State

    return [
        Finding(row["name"], State(row["state"]), row["text"], row["advice"] or "", _seconds(row["ms"]))
        for row in api.get("/doctor")["items"]
    ]


def _seconds(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000


def _steps(api: RemoteApi, given: Given) -> list[Step]:
    from iothub.admin.apply_steps import Step

    query = {"dry_run": True, "prune": given["prunes"]}
    found = api.call("POST", "/tenants:apply", given["document"], query)["steps"]
    return [Step(**row, run=None) for row in found]


def _apply(api: RemoteApi, given: Given) -> None:
    asked: Any = given["asked"]
    try:
        answer = api.call("POST", "/tenants:apply", asked.document, {"prune": asked.prunes})
    except KeyboardInterrupt:
        raise InterruptedWorkError(
            "interrupted; the API may go on with the changes: apply the file again for what is left. "
            "Secrets of devices that it makes are lost: `iothub device rotate-secret` makes new ones"
        ) from None
    for each in answer["secrets"]:
        given["on_secret"](each)
    if answer["problem"] is not None:
        raise api.refusal_of(answer["problem"])
    given["on_progress"](len(answer["steps"]), len(given["found"]))


_STREAMS = "/tenants/{tenant}/streams"
_LOG_LINES = 100_000
_TENANT, _DEVICE, _GROUP = "/tenants/{name}", "/tenants/{tenant}/devices/{name}", "/tenants/{tenant}/groups/{name}"
_MEMBER = "/tenants/{tenant}/groups/{group}/devices/{device}"
_RULES, _BANS, _ISSUER = "/tenants/{tenant}/acl-rules", "/tenants/{tenant}/bans", "/tenants/{tenant}/token-issuers"

_CALLS: Mapping[str, _Call] = {
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
    "devices.set_certificate": _Call("PUT", f"{_DEVICE}/certificate", _chosen("subject")),
    "devices.set_jwt": _act(f"{_DEVICE}:set-jwt"),
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
    "issuers.add": _Call("POST", _ISSUER, lambda given: {"name": given["name"], **_issuer(given)}),
    "issuers.change": _Call("PATCH", f"{_ISSUER}/{{name}}", _issuer),
    "token_issuers.remove": _Call("DELETE", f"{_ISSUER}/{{name}}"),
    "streams.list_all": _list(_STREAMS),
    "events.lag_of": _get("/events/lag", lambda answer, _given: answer["items"]),
    "stream_topics.rows": _list(_STREAMS),
    "stream_topics.shown": _get(f"{_STREAMS}/{{name}}"),
    "stream_topics.created": _Call("POST", _STREAMS, _new_stream),
    "stream_topics.deleted": _Call(
        "DELETE", f"{_STREAMS}/{{name}}", query=lambda given: {"keep_topic": given["is_topic_kept"]}
    ),
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
    "job_runs.show": _get("/runs/{run_id}", lambda answer, _given: Shown(answer)),
    "marks.forget": _Call("POST", "/jobs/{job}:forget", made=lambda answer, _given: answer["held"]),
    "runs.cancel": _Call("POST", "/runs/{run_id}:cancel", made=lambda answer, _given: Shown(answer)),
}

_OTHER: Mapping[str, Callable[[RemoteApi, Given], Any]] = {
    "tenants.page": _page("/tenants"),
    "devices.page": _page("/tenants/{tenant}/devices"),
    "acl_rules.list_all": _rules,
    "acl_rules.remove": _remove_rule,
    "acl_rules.remove_matching": _remove_rules,
    "acl_import.import_file": _import_rules,
    "audit.page": _audit,
    "plans.list_all": lambda api, given: [_plan(row, given) for row in api.all("/plans")],
    "quotas.effective": _effective,
    "quotas.list_all": _overrides,
    "quotas.set_limits": _set_limits,
    "quotas.unset": _unset_limits,
    "transfer.import_tenant": _import,
    "plans.create": _new_plan,
    "plans.set_plan": _change_plan,
    "plans.unset": _change_plan,
    "webhooks.list_all": lambda api, given: api.all(_webhooks(given)),
    "webhooks.show": _webhook("GET"),
    "webhooks.attempts": _webhook("GET", "/attempts", lambda answer: answer["items"]),
    "webhooks.create": _new_webhook,
    "webhooks.change": _change_webhook,
    "webhooks.rotate": _webhook("POST", ":rotate", _with_secret),
    "webhooks.remove": _webhook("DELETE"),
    "webhooks.send_test": _webhook("POST", ":test"),
    "tenants.count": lambda api, _given: api.get("/status")["tenants"],
    "usage.of_tenant": _usage,
    "usage.why_none": _no_usage,
    "job_runs.history": _runs,
    "runs.jobs": lambda api, _given: _columns(api, "name nightly options what"),
    "runs.states": lambda api, _given: _columns(api, "name state run started host pid last_success seconds next"),
    "runs.start": _start,
    "runs.read_log": lambda api, given: api.text(filled("/runs/{run_id}/log", given), lines=_LOG_LINES),
    "config.entries": lambda api, _given: [
        (row["name"], json.dumps(row["value"], ensure_ascii=False), row["origin"])
        for row in api.get("/config")["items"]
    ],
    "doctor.findings_of": _findings,
    "apply.steps": _steps,
    "apply.run": _apply,
}
"""Functions that take more than one request, or whose arguments are not the API's."""
