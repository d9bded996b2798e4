"""Event logs for tests of jobs: made by a seed, as large as wanted; written to a file as a hub does; and replayed without the program's fold.

Sessions connect, subscribe, lose their connection, are taken over, expire and come again. One tenant in two has most events, and one session
hundreds of times as many as others. Every so often a writer that was fenced is late, an event is there twice, or a session is transient.
"""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from itertools import islice, repeat
from pathlib import Path

from iothub.records import events
from iothub.records.events import Event, EventType, Subject, Topic, encode_event, partition_of
from iothub.records.layout import EVENT_TABLES

NOON_MS = 1_790_000_000_000
_FILTERS = ("status", "alerts/+", "fleet/#", "größe/+")


class EventMill:
    """Makes the events of one log, and goes on where it stopped.

    Invariants: per session the epoch rises with every claim; what is late or double has an epoch that was given before.
    """

    def __init__(self, sessions: int, tenants: int, seed: int = 1) -> None:
        self._random = random.Random(seed)
        self._sessions = sessions
        self._tenants = tenants
        self._epochs: dict[int, int] = {}
        self._is_live: dict[int, bool] = {}
        self._at_ms = NOON_MS
        self._events = (event for _ in repeat(None) for event in self._step())

    def events(self, count: int) -> Iterator[Event]:
        """Make the next events: the same ones, whether they are asked for together or a few at a time."""
        return islice(self._events, count)

    def _step(self) -> list[Event]:
        chance = self._random
        number = self._number()
        tenant_id, client_id = self.session(number)
        self._at_ms += chance.randrange(40)
        epoch, live = self._epochs.get(number, 0), self._is_live.get(number, False)
        subject = Subject(tenant_id, client_id, epoch, self._at_ms)
        if not live:
            return self._created(number, subject)
        kind = chance.random()
        if kind < 0.015:
            self._is_live[number] = False
            return [
                events.session_expired(subject)
                if kind < 0.01
                else events.session_discarded(subject, reason="clean_start")
            ]
        if kind < 0.03:  # fenced: its epoch was another's before
            late = subject._replace(epoch=max(1, epoch - 2))
            return [events.session_disconnected(late, reason="hub_lost"), _subscribed(late, "late/+", 0)]
        if kind < 0.05:
            return [_connected(subject._replace(epoch=0, client_id=f"transient-{number}"))]
        if kind < 0.25:
            made = _subscribed(subject, chance.choice(_FILTERS), chance.randrange(3))
            return [made, replace(made)] if kind < 0.07 else [made]  # sent again by a writer that had no answer
        if kind < 0.30:
            return [events.session_unsubscribed(subject, topic_filter=chance.choice(_FILTERS), group=None)]
        if kind < 0.37:
            return [_will(subject, chance.randbytes(8))]
        if kind < 0.40:
            return [events.will_cleared(subject)]
        return self._reconnected(number, subject, is_taken=kind < 0.45)

    def _number(self) -> int:
        """One event in fifty is of session 0; the first half of the sessions has most of the others."""
        chance = self._random
        if chance.random() < 0.02:
            return 0
        return int(self._sessions * chance.random() ** 2)

    def session(self, number: int) -> tuple[int, str]:
        """Half of the sessions are tenant 1's."""
        tenant_id = 1 if number % 2 == 0 else 1 + number % self._tenants
        return tenant_id, f"dévice-{number}" if number % 50 == 7 else f"device-{number}"

    def _created(self, number: int, subject: Subject) -> list[Event]:
        claimed = subject._replace(epoch=subject.epoch + 1)
        self._epochs[number], self._is_live[number] = claimed.epoch, True
        created = events.session_created(
            claimed,
            device=claimed.client_id,
            queue_id=number * 1_000 + claimed.epoch,
            protocol_version=5,
            session_expiry_s=3600,
            device_id=number + 1,
        )
        return [created, _connected(claimed)]

    def _reconnected(self, number: int, subject: Subject, *, is_taken: bool) -> list[Event]:
        claimed = subject._replace(epoch=subject.epoch + 1)
        self._epochs[number] = claimed.epoch
        left = (
            events.session_taken_over(subject, by="192.0.2.9:1")
            if is_taken
            else events.session_disconnected(
                subject, reason="keep_alive", session_expiry_s=self._random.choice([None, 60])
            )
        )
        resumed = events.session_resumed(claimed, protocol_version=4, session_expiry_s=7200, device_id=number + 1)
        return [left, resumed, _connected(claimed)]


def _connected(subject: Subject) -> Event:
    return events.session_connected(
        subject, device="d", protocol_version=5, session_expiry_s=7200, peer="192.0.2.1:5", keep_alive_s=60
    )


def _subscribed(subject: Subject, topic_filter: str, qos: int) -> Event:
    return events.session_subscribed(
        subject,
        topic_filter=topic_filter,
        group=None,
        qos=qos,
        no_local=False,
        retain_as_published=qos == 2,
        retain_handling=0,
        identifier=0,
    )


def _will(subject: Subject, payload: bytes) -> Event:
    return events.will_set(
        subject, topic="gone", payload=payload, qos=1, retain=False, properties=b"", delay_s=5, expiry_s=9
    )


# --- the embedded log


def make_log(path: Path) -> None:
    """Make an empty `events.db` as a hub does."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        for name in EVENT_TABLES.values():
            connection.execute(
                f"CREATE TABLE {name} (offset INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT NOT NULL, value BLOB NOT NULL)"
            )
        connection.execute("PRAGMA user_version=1")


def append(path: Path, logged: Iterable[Event], topic: Topic = Topic.SESSIONS) -> int:
    """Append events to an `events.db`; returns the log's end."""
    with closing(sqlite3.connect(path, timeout=30)) as connection, connection:
        statement = f"INSERT INTO {EVENT_TABLES[topic]} (key, value) VALUES (?, ?)"
        connection.executemany(statement, ((event.key, encode_event(event)) for event in logged))
        end = connection.execute(f"SELECT max(offset) FROM {EVENT_TABLES[topic]}").fetchone()[0]
    return int(end)


# --- a replay that owes nothing to `iothub.records.state`

Facts = dict[str, object]


class Replay:
    """Every session as a plain dictionary, from events in the order of the log; written from the text of the design, not from the fold."""

    def __init__(self) -> None:
        self.sessions: dict[tuple[int, str], Facts] = {}

    def take(self, event: Event, offset: int) -> None:
        if event.epoch == 0:
            return
        key = event.tenant_id, event.client_id
        known = self.sessions.get(key)
        if event.type is EventType.SESSION_CREATED:
            if known is None or event.epoch > int(str(known["epoch"])):
                self.sessions[key] = _begun(event, offset)
            return
        if known is None or known["is_ended"] or event.epoch < int(str(known["epoch"])):
            return
        known |= {"epoch": event.epoch, "offset": offset}
        self._change(known, event)

    def _change(self, known: Facts, event: Event) -> None:
        facts, kind = event.facts, event.type.word
        subscriptions = known["subscriptions"]
        assert isinstance(subscriptions, dict)
        if kind in ("session.resumed", "session.connected"):
            known |= {name: facts[name] for name in ("protocol_version", "session_expiry_s")}
            known["device_id"] = facts.get("device_id", known["device_id"])
        if kind == "session.connected":
            known |= {"is_connected": True, "connected_at_ms": event.at_ms}
        if kind in ("session.disconnected", "session.taken_over"):
            known |= {"is_connected": False, "disconnected_at_ms": event.at_ms}
            known["disconnect_reason"] = facts.get("reason", "taken_over")
            if facts.get("session_expiry_s") is not None:
                known["session_expiry_s"] = facts["session_expiry_s"]
        if kind in ("session.expired", "session.discarded"):
            ended = {name: known[name] for name in ("tenant_id", "client_id", "epoch", "offset")}
            known.clear()
            known |= ended | {"is_ended": True}
        if kind == "session.subscribed":
            names = ("qos", "no_local", "retain_as_published", "retain_handling", "identifier")
            subscriptions[facts["group"], facts["filter"]] = tuple(facts[name] for name in names)
        if kind == "session.unsubscribed":
            subscriptions.pop((facts["group"], facts["filter"]), None)
        if kind == "will.set":
            known["will"] = dict(facts)
        if kind == "will.cleared":
            known["will"] = None


def _begun(event: Event, offset: int) -> Facts:
    facts = event.facts
    return {
        "tenant_id": event.tenant_id,
        "client_id": event.client_id,
        "epoch": event.epoch,
        "offset": offset,
        "is_ended": False,
        "device": facts["device"],
        "queue_id": facts["queue_id"],
        "protocol_version": facts["protocol_version"],
        "session_expiry_s": facts["session_expiry_s"],
        "created_at_ms": event.at_ms,
        "is_connected": False,
        "connected_at_ms": 0,
        "disconnected_at_ms": event.at_ms,
        "disconnect_reason": "",
        "device_id": facts.get("device_id", 0),
        "subscriptions": {},
        "will": None,
    }


def replay(logged: Iterable[Event], partitions: int = 1, into: Replay | None = None, first: int = 1) -> Replay:
    """Replay events that were appended in this order, to a log with so many partitions; each partition counts from `first` (1 partition) or 1."""
    found = into or Replay()
    ends = [0] * partitions
    ends[0] = first - 1
    for event in logged:
        home = partition_of(event.key, partitions) if partitions > 1 else 0
        ends[home] += 1
        found.take(event, ends[home])
    return found
