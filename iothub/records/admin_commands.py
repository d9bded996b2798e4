"""What an administrator may ask of a running hub, as plain data: the verbs, a request, the rows of an answer.

Knows neither side and no transport: the command line asks over the hub's local socket (`iothub.net.admin_frames`), the hub asks other hubs
over its links (`iothub.peers.commands`). Arguments and answers are JSON objects; a refusal is an error of `iothub.base.errors`.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from iothub.base.errors import ConfigError, NotFoundError

BODY_BYTES = 192 << 10
"""Of a stored message in one row: Base64 makes a third more of it."""
MESSAGE_BYTES = 512 << 10
"""Of the payload of one that is published: with its topic and properties it fits into a frame of a request."""

Json = Mapping[str, object]


class Shown(dict[str, object]):
    """A row in the form in which people see it: the REST API of another machine has made it of what its hub has reported."""


_READ = True


class Verb(StrEnum):
    """What can be asked. A request names a tenant, unless "no tenant" is said.

    A list has rows and {"next": text or null}: what to give as `after` for the page that follows. A queue is {"queue_id", "driver", "messages",
    "bytes", "head", "tail", "epoch", "limits"}. "every hub": each hub answers for what it has in memory, and the answers are added up;
    "unanswered": [{"hub": text, "reason": text}] in the result names the hubs that are missing in it.
    """

    is_read: bool  # it changes nothing

    def __new__(cls, text: str, is_read: bool = False) -> Verb:
        verb = str.__new__(cls, text)
        verb._value_ = text
        verb.is_read = is_read
        return verb

    STATUS = "status", _READ  # no tenant, {} -> what `iothub status` shows
    ACCOUNTS_APPLY = "accounts.apply"  # no tenant, {} -> {}: what was changed in the accounts before is applied
    # no tenant, {} -> rows of changed settings {"name", "value": as TOML, "reload": "now" or "restart"};
    # {"warnings", "certificates": of listeners, and `cluster`}; ConfigError
    CONFIG_RELOAD = "config.reload"
    # no tenant, {} -> {"hold": text}: no SQLite file of the hub changes until the release, for 2 s at most; UnavailableError
    BACKUP_HOLD = "backup.hold"
    BACKUP_RELEASE = (
        "backup.release"  # no tenant, {"hold": text} -> {"is_whole": whether nothing has changed since the hold}
    )
    # every hub, {"after": text, "limit": number} -> rows of connected clients by client id: {"client_id", "device", "address", "listener",
    # "protocol_version", "connected_at_ms", "keep_alive_s", "is_persistent", "session_expiry_s", "subscriptions", "queued", "in_flight",
    # "unsent_bytes", "node"}; {"next"}, which a hub that answers for itself leaves out
    CLIENT_LIST = "client.list", _READ
    # every hub, {"by": "queue" or "in-flight", "limit": number} -> such rows, the largest count first; {}
    CLIENT_TOP = "client.top", _READ
    # every hub, {"client_id": text} -> rows of subscriptions; such a row; NotFoundError
    CLIENT_SHOW = "client.show", _READ
    CLIENT_KICK = "client.kick"  # every hub, {"client_id": text} -> such a row, of whom was put out; NotFoundError
    # every hub, {"after": place or "", "client_id": text or "", "group": text or "": all, "limit": number} -> rows of subscriptions by client id,
    # group and filter: {"client_id", "group": "" for none, "filter", "qos", "no_local", "is_connected"}; {"next"}
    SUBSCRIPTION_LIST = "subscription.list", _READ
    # every hub, {"after": place or "", "limit": number} -> rows of shared groups by name and filter: {"group", "filter", "connected": members,
    # "away": persistent sessions that are members}; {"next"}
    GROUP_LIST = "group.list", _READ
    # {"after": text, "limit": number} -> rows of sessions, each with its "queue" or null
    SESSION_LIST = "session.list", _READ
    SESSION_SHOW = "session.show", _READ  # {"client_id": text} -> rows of subscriptions; the session; NotFoundError
    SESSION_DISCARD = "session.discard"  # every hub, {"client_id": text} -> {}; NotFoundError
    QUEUE_LIST = "queue.list", _READ  # {"after": text, "limit": number} -> rows of queues, each with its "client_id"
    # {"client_id": text, "messages": number} -> its oldest, as `message_rows`; the queue
    QUEUE_SHOW = "queue.show", _READ
    # {"client_id": text} -> rows {"node": number, "done": number, "total": number}: its progress; {"messages": number}; NotFoundError
    QUEUE_PURGE = "queue.purge"
    # {"filter": Topic Filter, "after": text, "limit": number} -> rows {"name", "bytes", "version", "expires_at_ms"}
    RETAIN_LIST = "retain.list", _READ
    RETAIN_COUNT = "retain.count", _READ  # {"filter": Topic Filter} -> {"messages": number}
    RETAIN_SHOW = "retain.show", _READ  # {"topic": text} -> the message, as `message_rows`; {"version"}; NotFoundError
    # every hub, {"filter": Topic Filter} -> rows {"node": number, "done": number, "total": number}: its progress; {"messages": number}
    RETAIN_DELETE = "retain.delete"
    # {"topic": text, "payload": Base64 of at most MESSAGE_BYTES, "qos": number, "retain": bool, "expiry_s": number or null, "properties": object or
    # null: "content_type", "response_topic": texts, "correlation_data": Base64, "payload_format_indicator": number, "user_properties": pairs of
    # texts} -> {"message_id": text, "is_retained", "has_subscribers": bools}; ConfigError, DeniedError, ConflictError, TenantLimitError,
    # UnavailableError
    MESSAGE_PUBLISH = "message.publish"
    # {"is_unknown": true: those that named no known tenant; the request names none} -> rows of refused CONNECTs, oldest first: {"at_ms", "tenant",
    # "device", "client_id", "address", "listener", "protocol_version", "reason", "rule"}; {}
    REJECTED_LIST = "rejected.list", _READ
    # every hub, {"device", "client_id": empty: assigned, "address": texts, "has_certificate", "is_persistent": bools} -> rows of the steps of a
    # decision, in their order: {"node", "step", "outcome": "pass", "fail", "no match" or "not tested", "reason", "rule": what decided, or ""}; a
    # hub whose last row is "fail" refuses; {}
    EXPLAIN_CONNECT = "explain.connect", _READ
    # the same, {"device", "client_id", "topic": texts, "qos", "size": numbers, "is_retained": bool}
    EXPLAIN_PUBLISH = "explain.publish", _READ
    EXPLAIN_SUBSCRIBE = "explain.subscribe", _READ  # the same, {"device", "client_id", "filter": texts, "qos": number}
    # every hub, {"id": t- and 16 hexadecimal digits, "kind": "client", "device", "topic" or "ip", "value": text, "for_s", "max_bytes",
    # "payload_bytes": numbers, "has_pings": bool} -> {"hubs": number}; ConfigError, ConflictError: too many
    TRACE_START = "trace.start"
    # every hub, {} -> rows {"id", "node", "kind", "value", "for_s", "max_bytes", "payload_bytes_most", "started_at_ms", "bytes", "ended": why it did,
    # or "", "until_ms": when its file goes, or 0}; {}
    TRACE_LIST = "trace.list", _READ
    # every hub, {"id": text, "offsets": by node number as a text, "lines": number} -> rows {"node", "offset": behind it, "line": JSON}; {"active":
    # number of hubs where it runs}; NotFoundError
    TRACE_READ = "trace.read", _READ
    TRACE_STOP = "trace.stop"  # every hub, {"id": text} -> {"stopped": number}; NotFoundError
    TRACE_DELETE = (
        "trace.delete"  # every hub, {"id": text} -> {"deleted": number}; NotFoundError, ConflictError: it runs
    )
    # every hub, {"limit": number} -> rows {"device", "address", "until_ms"}; {"left_out": number, "reason": text}
    BAN_LIST = "ban.list", _READ
    BAN_LIFT = (
        "ban.lift"  # every hub, {"device": text, "address": text or null: all} -> {"bans": number}; NotFoundError
    )
    # every hub, {"name": text} -> {"state": text, "messages", "bytes", "messages_per_s", "pending", "pending_bytes", "refused": numbers}
    STREAM_SHOW = "stream.show", _READ
    # no tenant, every hub, {} -> rows of raised alarms, the oldest first: {"node", "name", "severity", "subject", "detail", "since": Unix time, s,
    # "advice"}; {}
    ALARM_LIST = "alarm.list", _READ
    # no tenant, {} -> rows of all hubs of the accounts by number, this one included: {"node", "name", "address", "version", "state": "up",
    # "draining", "down", "refused" or "gone", "is_self", "clients", "round_trip_ms", "unacknowledged_bytes", "cause"}; {}
    CLUSTER_STATUS = "cluster.status", _READ
    # no tenant, at the hub {"node": number or null: this one}, {"rate_per_s": number, "is_waited": bool} -> rows {"node", "done", "total"} while it
    # is waited; {"node", "name", "clients": left, "closed": numbers}; NotFoundError, UnavailableError, ConflictError: resumed
    CLUSTER_DRAIN = "cluster.drain"
    # no tenant, at the hub {"node": number or null} -> {"node", "name", "was_draining": bool}; NotFoundError, UnavailableError
    CLUSTER_RESUME = "cluster.resume"
    # no tenant, about another hub than the one that is asked, {"node": number} -> {"node", "name", "was_gone", "has_left": bools}; NotFoundError,
    # ConflictError: it is the one that is asked, or the last one; UnavailableError
    CLUSTER_EVICT = "cluster.evict"
    # no tenant, of one hub by another, {} -> rows {"node", "clients": numbers, "is_draining": bool, "reference": where it is for clients, or ""}; {}
    CLUSTER_NODE = "cluster.node", _READ
    # no tenant, of one worker by another of the same data directory, {} -> rows of figures, as `iothub_services.metrics.merging` and
    # `exposition.Registry.process_rows` have them; {}
    WORKER_METRICS = "worker.metrics", _READ
    # the same, {"tenant": text or null: all, "after": text, "limit": number} -> rows {"tenant", "figures": rows}; {}
    WORKER_TENANTS = "worker.tenants", _READ
    WORKER_STATUS = "worker.status", _READ  # the same, {} -> {"brief", "page"}: what it says of itself


_READING = frozenset(verb for verb in Verb if verb.is_read)


@dataclass(frozen=True, slots=True)
class Request:
    """One question. `verb` may be one that this program does not know: a later one sends it."""

    verb: str
    tenant: str
    argument: Json

    @property
    def is_change(self) -> bool:
        """Tell whether it changes something, as far as this program knows. Pages and scrapes read all the time."""
        return self.verb not in _READING

    def text(self, name: str) -> str:
        """Return an argument. Raises ConfigError: it is no text of the protocol."""
        value = self.argument.get(name)
        if not isinstance(value, str) or not _is_text(value):
            raise ConfigError(f"{self.verb}: {name}: expected a text in UTF-8")
        return value

    def number(self, name: str) -> int:
        """Return an argument. Raises ConfigError: it is no number."""
        value = self.argument.get(name)
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise ConfigError(f"{self.verb}: {name}: expected a number")
        return value

    def flag(self, name: str) -> bool:
        """Return an argument. Raises ConfigError: it is neither true nor false."""
        value = self.argument.get(name)
        if not isinstance(value, bool):
            raise ConfigError(f"{self.verb}: {name}: expected true or false")
        return value


def no_tenant(name: str) -> NotFoundError:
    return NotFoundError(f"there is no tenant {name!r}; `iothub tenant list` shows them")


class Reply(Protocol):
    """Where the rows of an answer go."""

    async def rows(self, rows: Sequence[Json]) -> None:
        """Send some, at their own pace: it returns when there is room for more. None at all says that the work continues.

        Raises UnavailableError: nobody listens any more.
        """


Answering = Callable[[Request, Reply], Awaitable[Json]]
"""`await answer(request, reply)`: send the rows, return the result. Raises IotHubError: the refusal."""

Verbs = Mapping[str, Answering]
"""What answers each verb."""


async def answer_with(verbs: Verbs, request: Request, reply: Reply) -> Json:
    """Let the verb of a request answer it. Raises IotHubError."""
    answer = verbs.get(request.verb)
    if answer is None:
        raise ConfigError(f"this hub does not know the request {request.verb!r}: it is of another version")
    if not _is_text(request.tenant):
        raise no_tenant(request.tenant)
    return await answer(request, reply)


def place_text(place: Sequence[str]) -> str:
    """Return where a page ends in a list that is in the order of several texts, as `after` takes it."""
    return json.dumps(list(place), ensure_ascii=False, separators=(",", ":"))


def place_in(text: str, parts: int) -> tuple[str, ...]:
    """Return the texts of a place, () for an empty one. Raises ConfigError: it is none."""
    if not text:
        return ()
    try:
        place = json.loads(text)
    except (ValueError, RecursionError):
        place = None
    is_place = isinstance(place, list) and len(place) == parts and all(isinstance(each, str) for each in place)
    if not is_place or not all(map(_is_text, place)):
        raise ConfigError("after: expected what the page before gave for its next one")
    return tuple(place)


def message_rows(facts: Json, body: bytes) -> Iterator[Json]:
    """Yield a stored message as rows of a bounded size: the first one has the facts, each a piece of the body, the last is `is_last`."""
    for start in range(0, max(len(body), 1), BODY_BYTES):
        piece = base64.b64encode(body[start : start + BODY_BYTES]).decode()
        yield {**(facts if not start else {}), "body": piece, "is_last": start + BODY_BYTES >= len(body)}


def messages_in(rows: Iterable[Json]) -> Iterator[tuple[Json, bytes]]:
    """Yield the facts and the body of each message of `message_rows`; a row that is shown as it is has no body."""
    facts: Json | None = None
    pieces: list[bytes] = []
    for row in rows:
        if isinstance(row, Shown):
            yield row, b""
            continue
        facts = row if facts is None else facts
        pieces.append(base64.b64decode(str(row["body"])))
        if row["is_last"]:
            yield facts, b"".join(pieces)
            facts, pieces = None, []


def _is_text(value: str) -> bool:
    """Whether it is UTF-8: bytes of a command line that are not arrive as lone surrogates."""
    return not any("\ud800" <= mark <= "\udfff" for mark in value)
