"""What a running hub reports, in the form in which the command line and the REST API show it.

Knows no transport and prints nothing: `iothub.records.admin_commands.Verb` says what a hub reports.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any, ParamSpec

from iothub.admin.content import describe, time_of
from iothub.base.errors import CorruptRecordError
from iothub.records.admin_commands import Json, Shown

Row = dict[str, object]
AnyJson = Any  # a JSON object from the hub, as `iothub.records.admin_commands.Verb` describes it

P = ParamSpec("P")

VERSIONS = {3: "3.1", 4: "3.1.1", 5: "5.0"}
FAILURES = "failures"  # the kind of a hub's own bans
_NEVER = 0xFFFFFFFF  # §3.1.2.11.2: the session does not expire


def _unless_shown(describe: Callable[P, Row]) -> Callable[P, Row]:
    """Return a row that is in its form already as it is."""

    @wraps(describe)
    def described(*given: P.args, **named: P.kwargs) -> Row:
        reported = given[0]
        return reported if isinstance(reported, Shown) else describe(*given, **named)

    return described


@_unless_shown
def client_row(reported: AnyJson) -> Row:
    """Return a connected client as lists have it."""
    return {
        "name": reported["client_id"],
        "device": reported["device"],
        "address": reported["address"],
        "listener": reported["listener"],
        "version": VERSIONS.get(reported["protocol_version"], ""),
        "connected": time_of(reported["connected_at_ms"]),
        "keep_alive_s": reported["keep_alive_s"],
        "subscriptions": reported["subscriptions"],
        "queued_messages": reported["queued"],
        "in_flight_messages": reported["in_flight"],
        "unsent_bytes": reported["unsent_bytes"],
        "node": reported["node"],
    }


@_unless_shown
def client_facts(reported: AnyJson) -> Row:
    """Return all that is known of a connected client, without its subscriptions."""
    return client_row(reported) | {
        "is_persistent": reported["is_persistent"],
        "session_expiry_s": _expiry_interval(reported),
    }


@_unless_shown
def session_row(reported: AnyJson) -> Row:
    """Return a persistent session as lists have it."""
    queue = reported["queue"] or {"messages": 0, "bytes": 0}
    return {
        "name": reported["client_id"],
        "device": reported["device"],
        "is_connected": reported["is_connected"],
        "version": VERSIONS.get(reported["protocol_version"], ""),
        "subscriptions": reported["subscriptions"],
        "queued_messages": queue["messages"],
        "queued_bytes": queue["bytes"],
        "expires": _expiry(reported),
    }


@_unless_shown
def session_facts(reported: AnyJson) -> Row:
    """Return all that is known of a session, without its subscriptions."""
    queue = reported["queue"] or {}
    return session_row(reported) | {
        "created": time_of(reported["created_at_ms"]),
        "connected": time_of(reported["connected_at_ms"]),
        "disconnected": None if reported["is_connected"] else time_of(reported["disconnected_at_ms"]),
        "disconnect_reason": None if reported["is_connected"] else reported["disconnect_reason"],
        "session_expiry_s": _expiry_interval(reported),
        "queue_id": reported["queue_id"],
        "queue_driver": queue.get("driver"),
        "node": reported["node"],
        "will": reported["will"],
    }


@_unless_shown
def subscription_row(reported: Json) -> Row:
    """Describe a subscription, its filter as the client gave it."""
    group, topic_filter = reported["group"], reported["filter"]
    name = topic_filter if group is None else f"$share/{group}/{topic_filter}"
    return {"name": name, "qos": reported["qos"], "no_local": reported["no_local"]}


def client_subscription_row(reported: Json) -> Row:
    """Describe a subscription of one of many clients."""
    row = subscription_row({**reported, "group": reported["group"] or None})
    return {"client_id": reported["client_id"], **row, "is_connected": reported["is_connected"]}


def share_group_row(reported: Json) -> Row:
    """Return a shared group; `away`: members whose client is not connected, and whose session is kept."""
    return {
        "name": reported["group"],
        "filter": reported["filter"],
        "connected": reported["connected"],
        "away": reported["away"],
    }


def alarm_rows(reported: Iterable[Json]) -> list[Row]:
    """Return raised alarms, the oldest first."""
    rows = list(reported)
    if any(isinstance(row, Shown) for row in rows):
        return [dict(row) for row in rows]
    found = sorted(rows, key=lambda row: float(str(row["since"])))
    return [{**row, "since": time_of(int(float(str(row["since"])) * 1000))} for row in found]


def queue_row(client_id: str, reported: AnyJson) -> Row:
    """Return a queue as lists have it."""
    shown = ("queue_id", "driver", "messages", "bytes", "head", "tail", "epoch")
    return {"name": client_id, **{name: reported[name] for name in shown if name in reported}}


@_unless_shown
def queue_limits(reported: AnyJson) -> Row:
    """Return the limits of a queue, 0 as "unlimited"."""
    shown = {name: max(reported[name], 0) if reported[name] else "unlimited" for name in ("messages", "bytes")}
    return {**shown, "overflow": reported["overflow"]}


@_unless_shown
def queued_message(facts: AnyJson, body: bytes) -> Row:
    """Describe a queued message; one that is damaged has a `problem`."""
    shown: Row = {"position": facts["position"], "delivery_qos": facts["qos"]}
    shown["expires"] = time_of(facts["expires_at_ms"])
    try:
        return {**describe(body), **shown}
    except CorruptRecordError as error:
        return {**shown, "problem": str(error)}


@_unless_shown
def retained_row(reported: Json) -> Row:
    """Return a topic with a retained message."""
    expires = time_of(int(str(reported["expires_at_ms"])))
    return {"name": reported["name"], "bytes": reported["bytes"], "version": reported["version"], "expires": expires}


def retained_message(facts: AnyJson, body: bytes) -> Row:
    """Describe a retained message. Raises CorruptRecordError."""
    return facts if isinstance(facts, Shown) else describe(body)


@_unless_shown
def rejected_row(reported: AnyJson) -> Row:
    """Return a refused CONNECT."""
    return {
        "name": reported["client_id"],
        "time": time_of(reported["at_ms"]),
        "tenant": reported["tenant"],
        "device": reported["device"],
        "client_id": reported["client_id"],
        "address": reported["address"],
        "listener": reported["listener"],
        "version": VERSIONS.get(reported["protocol_version"], ""),
        "reason": reported["reason"],
        "rule": reported["rule"],
    }


def failure_ban_rows(tenant: str, reported: Iterable[Json], reason: str) -> list[Row]:
    """Return the bans after failed logins by device and address, each once and as long as it holds anywhere.

    A ban that one hub makes is in force at those that are linked to it, and the hubs answer in any order.
    """
    reported = list(reported)
    if any(isinstance(each, Shown) for each in reported):
        return [dict(each) for each in reported]
    by_end = sorted(reported, key=lambda each: int(str(each["until_ms"])))
    bans = {(str(each["device"]), str(each["address"])): each for each in by_end}
    return [_failure_ban_row(tenant, ban, reason) for _, ban in sorted(bans.items())]


def _failure_ban_row(tenant: str, reported: Json, reason: str) -> Row:
    device = str(reported["device"])
    return {
        "name": device,
        "tenant": tenant,
        "kind": FAILURES,
        "value": device,
        "until": time_of(int(str(reported["until_ms"]))),
        "reason": f"automatic: {reason}",
        "created": None,
        "address": reported["address"],
    }


def _expiry_interval(reported: AnyJson) -> object:
    return "never" if reported["session_expiry_s"] == _NEVER else reported["session_expiry_s"]


def _expiry(reported: AnyJson) -> str | None:
    if reported["is_connected"] or reported["session_expiry_s"] == _NEVER:
        return None
    return time_of(reported["disconnected_at_ms"] + reported["session_expiry_s"] * 1000)
