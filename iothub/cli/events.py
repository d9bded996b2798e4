"""`iothub events`: reads the session-event log of any driver, beside a running hub or without one. Never changes it.

Knows events as records; what they do to a session's state is not looked at.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from heapq import nlargest

import click

from iothub.admin.content import time_of
from iothub.base.errors import CorruptRecordError, IotHubError, NotFoundError
from iothub.cli import accounts, output
from iothub.cli.app import App, noun, verb
from iothub.cli.numbers import WholeNumber
from iothub.config.datadir import DataDir
from iothub.config.sections import Config
from iothub.records.events import Topic
from iothub_services.events.port import NOWHERE, DamagedEvent, EventLog, LoggedEvent, Offsets, raised, reached

command = noun("events", "The session-event log: what each session did. Its driver is `events.driver`.")
_TOPICS = {"sessions": Topic.SESSIONS, "analytics": Topic.ANALYTICS}
_POLL_S = 0.5
_SHOWN_DAMAGE = 100
_COLUMNS = ("time", "name", "tenant", "client_id", "epoch", "partition", "offset", "facts")
_NOT_SHOWN = ("payload", "properties")  # of a Will Message, in a table; JSON has them

_Wanted = Callable[[LoggedEvent], bool]
_Age = tuple[int, int, int]  # Unix milliseconds, partition, offset


@verb(command, "tail")
@click.option("--tenant", help="Only events of this tenant.")
@click.option("--client", "client_id", help="Only events of this client id.")
@click.option("--count", type=WholeNumber(1, 100_000), default=20, show_default=True, help="Maximum number of events.")
@click.option("--topic", type=click.Choice(list(_TOPICS)), default="sessions", show_default=True, help="Which log.")
@click.option(
    "--follow", "is_following", is_flag=True, help="Print new events as they come; with -o json one object per line."
)
def tail(app: App, tenant: str | None, client_id: str | None, count: int, topic: str, is_following: bool) -> None:
    """Show the newest events, oldest first.

    With --tenant or --client it reads the whole log, else only its end. It passes over damaged events with a warning. A tenant that is deleted
    is shown by its number (JSON: `tenant` is null, `tenant_id` is the number).

    Examples:
      iothub --data-dir ./hub events tail
      iothub --data-dir ./hub events tail --tenant acme --client meter-7 --count 100 -o jsonl
      iothub --data-dir ./hub events tail --follow
    """
    wanted = _chosen(app, tenant, client_id)
    with _log(app) as log:
        is_all = tenant is None and client_id is None
        end = log.end(_TOPICS[topic])
        after = _last(count, log.begin(_TOPICS[topic]), end) if is_all else NOWHERE
        coming = _read(log, after, end, _warn, _TOPICS[topic])
        found = (logged for logged in coming if logged.offset <= end[logged.partition] and wanted(logged))
        newest = [logged for _, logged in sorted(nlargest(count, _dated(found)))]
        names = _Tenants(app)
        if not is_following:
            app.rows([_row(logged, app.form, names) for logged in newest], *_COLUMNS)
            return
        for logged in newest:
            _write_line(app, logged, names)
        _follow(app, log, _TOPICS[topic], end, wanted, names)


@verb(command, "lag")
def lag(app: App) -> None:
    """Show for each partition where the session log begins and ends, and how far the session states are behind.

    A running hub writes the states when it is idle. A lag loses nothing: the next start adds the missing events.

    Example:
      iothub --data-dir ./hub events lag -o json
    """
    rows = accounts.of_events.lag_of(app.there, app.data_dir, app.loaded.config)
    app.rows(rows, "partition", "begin", "end", "events", "applied", "lag")


@verb(command, "verify")
@click.option("--topic", type=click.Choice(list(_TOPICS)), default="sessions", show_default=True, help="Which log.")
def verify(app: App, topic: str) -> None:
    """Read the whole log and check that every event is intact and in the right partition; exit code 1 if not.

    Example:
      iothub --data-dir ./hub events verify
    """
    damaged: list[str] = []

    def note(found: DamagedEvent) -> None:
        damaged.append(found.reason)

    with _log(app) as log:
        end = log.end(_TOPICS[topic])
        counts: Counter[int] = Counter()
        for logged in _read(log, NOWHERE, end, note, _TOPICS[topic]):
            counts[logged.partition] += 1
    record = {
        "events": sum(counts.values()),
        "partitions": len(end),
        "damaged": len(damaged),
        "damage": damaged[:_SHOWN_DAMAGE],
    }
    app.record(record)
    if damaged:
        raise CorruptRecordError(
            f"the log has {output.counted(len(damaged), 'damaged event')}, which hubs and jobs pass over: {damaged[0]}"
        )


def lag_of(_there: object, data_dir: DataDir, settings: Config) -> list[dict[str, object]]:
    """Return a row for each partition of this machine's log."""
    from iothub.cli import stores  # loads every driver

    data_dir.require_initialised()
    with reading(data_dir, settings) as log:
        return lag_rows(log, stores.applied_offsets(data_dir, settings))


def lag_rows(log: EventLog, applied: Offsets) -> list[dict[str, object]]:
    """Return a row for each partition; `applied`: how far the session states include the log."""
    begin, end = log.begin(), log.end()
    return [
        {
            "partition": partition,
            "begin": begin[partition],
            "end": end[partition],
            "events": end[partition] - begin[partition] + 1,
            "applied": reached(applied, partition),
            "lag": max(end[partition] - max(reached(applied, partition), begin[partition] - 1), 0),
        }
        for partition in range(len(end))
    ]


@contextmanager
def _log(app: App) -> Iterator[EventLog]:
    app.data_dir.require_initialised()
    with reading(app.data_dir, app.loaded.config) as log:
        yield log


@contextmanager
def reading(data_dir: DataDir, settings: Config) -> Iterator[EventLog]:
    """Open the log to read. Raises NotFoundError: no hub has made it yet."""
    from iothub.cli import stores  # loads every driver

    with stores.reading_events(data_dir, settings) as log:
        if log is None:
            raise NotFoundError(
                "there is no event log yet: the first `iothub serve` creates it; for a log on Kafka give the hub's own --config"
            )
        yield log


def _chosen(app: App, tenant: str | None, client_id: str | None) -> _Wanted:
    tenant_id = None if tenant is None else accounts.tenants.show(app.store(), tenant).id

    def is_wanted(logged: LoggedEvent) -> bool:
        event = logged.event
        return tenant_id in (None, event.tenant_id) and client_id in (None, event.client_id)

    return is_wanted


class _Tenants:
    """Names of tenants by number, read when a number is met for the first time."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._names: dict[int, str] = {}
        self._nameless: set[int] = set()

    def name(self, tenant_id: int) -> str | None:
        """Return the name; None for a tenant that is gone, or if the accounts cannot be read."""
        if tenant_id not in self._names and tenant_id not in self._nameless:
            try:
                self._names = accounts.registry.Registry(self._app.store()).tenant_names()
            except IotHubError as error:
                self._app.say(f"iothub: warning: tenants are shown by their numbers: {error}")
            if tenant_id not in self._names:
                self._nameless.add(tenant_id)
        return self._names.get(tenant_id)


def _read(
    log: EventLog, after: Offsets, end: Offsets, note: Callable[[DamagedEvent], None], topic: Topic
) -> Iterable[LoggedEvent]:
    from iothub_services.events.reading import read_between  # loads Twisted

    return read_between(log, after, end, note, topic)


def _follow(app: App, log: EventLog, topic: Topic, after: Offsets, wanted: _Wanted, names: _Tenants) -> None:
    """Print new events after these offsets, until Ctrl-C."""
    while True:
        end = log.end(topic)
        for logged in _read(log, after, end, _warn, topic):
            after = raised(after, logged.partition, logged.offset)
            if wanted(logged):
                _write_line(app, logged, names)
        after = tuple(max(reached(after, partition), offset) for partition, offset in enumerate(end))
        time.sleep(_POLL_S)


def _last(count: int, begin: Offsets, end: Offsets) -> Offsets:
    """Return the offset before the last `count` events of each partition; 0 if it has no more events."""
    return tuple(last - count if last - count >= first else 0 for first, last in zip(begin, end, strict=True))


def _dated(events: Iterable[LoggedEvent]) -> Iterator[tuple[_Age, LoggedEvent]]:
    """Yield each event with its sort key: its time, which never goes back within a partition, even if a clock did."""
    latest: dict[int, int] = {}
    for logged in events:
        partition = logged.partition
        latest[partition] = max(latest.get(partition, 0), logged.event.at_ms)
        yield (latest[partition], partition, logged.offset), logged


def _write_line(app: App, logged: LoggedEvent, names: _Tenants) -> None:
    row = _row(logged, app.form, names)
    if app.form == "table":
        output.write_text("  ".join(output.cell(row[column]) for column in _COLUMNS))
    else:
        output.write_json_line(row)


def _row(logged: LoggedEvent, form: str, names: _Tenants) -> dict[str, object]:
    """Return an event. A tenant that has no name any more is null for a script, its number for a person."""
    event = logged.event
    hidden = _NOT_SHOWN if form == "table" else ()
    is_for_scripts = form in {"json", "jsonl"}
    name = names.name(event.tenant_id)
    return {
        "time": time_of(event.at_ms),
        "name": event.type.word,
        "tenant": name if name is not None or is_for_scripts else event.tenant_id,
        "tenant_id": event.tenant_id,
        "client_id": event.client_id,
        "epoch": event.epoch,
        "partition": logged.partition,
        "offset": logged.offset,
        "facts": {name: fact for name, fact in event.facts.items() if name not in hidden},
    }


def _warn(damaged: DamagedEvent) -> None:
    from iothub.cli import stores

    stores.warn_of_damage(damaged.reason)
