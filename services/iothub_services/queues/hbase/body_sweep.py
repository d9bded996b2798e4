"""Mark and sweep of the bodies of a namespace: what no queue refers to is deleted.

Knows tables and what refers to bodies, and that one process sweeps at a time, a hub once a day or an operator now; knows no settings.

Theory: a body is durable before anything refers to it, and its references are made within the seconds in which a hub repeats an append. So
what is younger than `LEAST_AGE_S` is spared, by the time that HBase gave its cells. An open intent may refer to an older one: its reference
moves to records before it is closed, so intents are read before records. What was consumed but is still stored counts
as a reference; it goes with a flush. A damaged record refers to nothing, for readers pass it over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from iothub.base.errors import BackendError, NotFoundError
from iothub.records import keys
from iothub.records.layout import missing_tables
from iothub_services.hbase import calls
from iothub_services.hbase.caller import Caller
from iothub_services.hbase.calls import Mutation, Scan
from iothub_services.hbase.pages import pages
from iothub_services.hbase.tables import Tables
from iothub_services.queues.hbase.bodies import FIRST_PIECE
from iothub_services.queues.hbase.references import Marked, referenced
from iothub_services.queues.hbase.sweep_lease import RENEW_MS, SweepLease

LEAST_AGE_S = 3600.0  # no append is repeated for as long, and no pause of a hub is survived
USUAL_AGE_S = 86_400.0

References = Iterator[Sequence[tuple[int, bytes]]]
"""Page by page: (tenant id, body id) of what is referred to."""


@dataclass(slots=True)
class Swept:
    """How far a sweep is. `records`: references that were read; `referenced`, `young`, `loose`: what becomes of `bodies`."""

    references: int = 0
    bodies: int = 0
    young: int = 0
    referenced: int = 0
    loose: int = 0
    deleted: int = 0


Watch = Callable[[Swept], None]
"""Called after every page; may wait, and may raise to end the sweep."""


def sweep(
    caller: Caller,
    tables: Tables,
    before_ms: int,
    watch: Watch,
    marked: Marked | None = None,
    *,
    is_dry_run: bool = False,
) -> Swept:
    """Delete the bodies that nothing refers to and that HBase has had since before `before_ms`. May be ended and begun anew at any time.

    Raises:
        BackendError: HBase cannot be reached, or refused.
        NotFoundError: There is no table of queues, or of bodies.
    """
    swept = Swept()
    marked = Marked() if marked is None else marked
    for part in _references(caller, tables):
        for body in part:
            marked.add(*body)
        swept.references += len(part)
        watch(swept)
    scan = Scan(tables.bodies, columns=(FIRST_PIECE,), filter_text=b"KeyOnlyFilter()")
    for rows in pages(caller, scan):
        loose: list[bytes] = []
        for row in rows:
            body_id, tenant_id = keys.message_of_body(row.key)
            swept.bodies += 1
            if row.cells[FIRST_PIECE].timestamp >= before_ms:
                swept.young += 1
            elif (tenant_id, body_id) in marked:
                swept.referenced += 1
            else:
                loose.append(row.key)
        swept.loose += len(loose)
        if loose and not is_dry_run:
            caller.call(calls.mutate_rows(tables.bodies, [Mutation(key, {}, (b"b",)) for key in loose]))
            swept.deleted += len(loose)
        watch(swept)
    return swept


def sweep_leased(
    caller: Caller,
    tables: Tables,
    age_s: float,
    watch: Watch,
    monotonic: Callable[[], float],
    *,
    every_s: float = 0.0,
) -> Swept | None:
    """Sweep what is older than `age_s`; None: it was done less than `every_s` ago, or somebody is at it.

    Raises:
        BackendError: HBase cannot be reached, or refused; what was deleted stays deleted.
        ConflictError: Somebody is at it, and it is asked for now; or this process was silent for too long.
        CorruptRecordError: The row of the lease is damaged.
        NotFoundError: There is no table of queues, or of bodies.
    """
    lease = SweepLease(caller, tables.queue_index)
    now_ms = lease.acquire(int(every_s * 1000))
    if not now_ms:
        return None
    renewed_at = monotonic()

    def renew(swept: Swept) -> None:
        nonlocal renewed_at
        watch(swept)
        if (monotonic() - renewed_at) * 1000 >= RENEW_MS:
            lease.renew()
            renewed_at = monotonic()

    is_done = False
    try:
        swept = sweep(caller, tables, now_ms - int(age_s * 1000), renew)
        is_done = True
    finally:
        with suppress(BackendError):  # then it counts as taken for a while
            lease.release(is_done=is_done)
    return swept


def dry_sweep(caller: Caller, tables: Tables, age_s: float, watch: Watch) -> Swept:
    """Say what `sweep_leased` would do, and delete nothing. Raises as it does, but for ConflictError."""
    now_ms = SweepLease(caller, tables.queue_index).now_ms()
    return sweep(caller, tables, now_ms - int(age_s * 1000), watch, is_dry_run=True)


def _references(caller: Caller, tables: Tables) -> References:
    missing = {tables.queues, tables.bodies}.difference(caller.call(calls.table_names()))
    if missing:
        raise NotFoundError(missing_tables(*sorted(name.decode() for name in missing)))
    for of_intents in (True, False):
        yield from referenced(caller, tables.queues, of_intents=of_intents)
