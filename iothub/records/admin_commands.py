"""What an administrator may ask of a running hub, as plain data: the verbs, a request, the rows of an answer.

Knows neither side and no transport: the command line asks over the hub's local socket (`iothub.net.admin_frames`) or through the command
table (`iothub_tenants.accounts.commands`). Arguments and answers are JSON objects; a refusal is an error of `iothub.base.errors`.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

BODY_BYTES = 192 << 10
"""Of a stored message in one row: Base64 makes a third more of it."""

Json = Mapping[str, object]


class Verb(StrEnum):
    """What changes something, or every hub of the accounts may be meant: it goes through the command table.

    "tenant": the command names one; without it the command is for the whole hub.
    """

    PING = "ping"  # {"node": node number} -> {"version": text}; where several hubs use the accounts, that one answers
    SESSION_DISCARD = "session.discard"  # tenant, {"client_id": text} -> {}; NotFoundError
    QUEUE_PURGE = "queue.purge"  # tenant, {"client_id": text} -> {"messages": number}; NotFoundError
    RETAIN_DELETE = "retain.delete"  # tenant, {"filter": Topic Filter} -> {"messages": number}
    # tenant, {"limit": number} -> {"bans": [{"device", "address", "until_ms"}], "left_out": number, "reason": text}
    BAN_LIST = "ban.list"
    # tenant, {"name": text} -> {"state": text, "messages", "bytes", "messages_per_s", "pending", "pending_bytes", "refused": numbers}
    STREAM_SHOW = "stream.show"
    BAN_LIFT = "ban.lift"  # tenant, {"device": text, "address": text or null: all} -> {"bans": number}; NotFoundError


class Query(StrEnum):
    """What only reads, or concerns only the hub of one data directory: it goes over the local socket.

    Each names a tenant, but for `config`, `status` and `backup`. A list has rows and {"next": text or null}: what to give as `after` for the
    page that follows. A queue is {"queue_id", "driver", "messages", "bytes", "head", "tail", "epoch", "limits"}.
    """

    # {} -> rows of changed settings {"name", "value": as TOML, "reload": "now" or "restart"}; {"warnings", "certificates": listeners}; ConfigError
    CONFIG_RELOAD = "config.reload"
    STATUS = "status"  # {} -> as `Verb.PING`, also where the accounts cannot be written
    # {} -> {"hold": text}: no SQLite file of the hub changes until the release, for 2 s at most; UnavailableError
    BACKUP_HOLD = "backup.hold"
    BACKUP_RELEASE = "backup.release"  # {"hold": text} -> {"is_whole": whether nothing has changed since the hold}
    SESSION_LIST = "session.list"  # {"after": text, "limit": number} -> rows of sessions, each with its "queue" or null
    SESSION_SHOW = "session.show"  # {"client_id": text} -> rows of subscriptions; the session; NotFoundError
    QUEUE_LIST = "queue.list"  # {"after": text, "limit": number} -> rows of queues, each with its "client_id"
    QUEUE_SHOW = "queue.show"  # {"client_id": text, "messages": number} -> its oldest, as `message_rows`; the queue
    # {"filter": Topic Filter, "after": text, "limit": number} -> rows {"name", "bytes", "version", "expires_at_ms"}
    RETAIN_LIST = "retain.list"
    RETAIN_COUNT = "retain.count"  # {"filter": Topic Filter} -> {"messages": number}
    # {"is_unknown": true: those that named no known tenant; the request names none} -> rows of refused CONNECTs, oldest first: {"at_ms", "tenant",
    # "device", "client_id", "address", "listener", "protocol_version", "reason", "rule"}; {}
    REJECTED_LIST = "rejected.list"
    RETAIN_SHOW = "retain.show"  # {"topic": text} -> the message, as `message_rows`; {"version"}; NotFoundError


@dataclass(frozen=True, slots=True)
class Request:
    """One question. `verb` may be one that this program does not know: a later one sends it."""

    verb: str
    tenant: str
    argument: Json


class Reply(Protocol):
    """Where the rows of an answer go."""

    async def rows(self, rows: Sequence[Json]) -> None:
        """Send some, at their own pace: it returns when there is room for more. None at all says that the work continues.

        Raises UnavailableError: nobody listens any more.
        """


def message_rows(facts: Json, body: bytes) -> Iterator[Json]:
    """Yield a stored message as rows of a bounded size: the first one has the facts, each a piece of the body, the last is `is_last`."""
    for start in range(0, max(len(body), 1), BODY_BYTES):
        piece = base64.b64encode(body[start : start + BODY_BYTES]).decode()
        yield {**(facts if not start else {}), "body": piece, "is_last": start + BODY_BYTES >= len(body)}


def messages_in(rows: Iterable[Json]) -> Iterator[tuple[Json, bytes]]:
    """Yield the facts and the body of each message of `message_rows`."""
    facts: Json | None = None
    pieces: list[bytes] = []
    for row in rows:
        facts = row if facts is None else facts
        pieces.append(base64.b64decode(str(row["body"])))
        if row["is_last"]:
            yield facts, b"".join(pieces)
            facts, pieces = None, []
