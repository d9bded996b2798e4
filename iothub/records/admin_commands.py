"""What the command line may ask of a running hub, through the command table (`iothub_tenants.accounts.commands`).

Knows neither side. Each verb has an argument and an answer, both JSON objects; a refusal is an error of `iothub.base.errors`.
"""

from __future__ import annotations

from enum import StrEnum


class Verb(StrEnum):
    """The verbs. "tenant": the command names one; without it the command is for the whole hub."""

    PING = "ping"  # {"node": node number} -> {"version": text}; where several hubs use the accounts, that one answers
    SESSION_DISCARD = "session.discard"  # tenant, {"client_id": text} -> {}; NotFoundError
    QUEUE_PURGE = "queue.purge"  # tenant, {"client_id": text} -> {"messages": number}; NotFoundError
    RETAIN_DELETE = "retain.delete"  # tenant, {"filter": Topic Filter} -> {"messages": number}
    # tenant, {"limit": number} -> {"bans": [{"device", "address", "until_ms"}], "left_out": number, "reason": text}
    BAN_LIST = "ban.list"
    # tenant, {"name": text} -> {"state": text, "messages", "bytes", "messages_per_s", "pending", "pending_bytes", "refused": numbers}
    STREAM_SHOW = "stream.show"
    BAN_LIFT = "ban.lift"  # tenant, {"device": text, "address": text or null: all} -> {"bans": number}; NotFoundError
