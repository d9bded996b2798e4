"""Mark and sweep of the bodies of a namespace: what no queue of either driver refers to is deleted.

Knows tables and what refers to bodies; knows neither whose turn it is nor when.

Theory: a body is durable before anything refers to it, and its references are made within the seconds in which a hub repeats an append. So
what is younger than `LEAST_AGE_S` is spared, by the time that HBase gave its cells. An open intent may refer to an older one: its reference
moves to records before it is closed, so intents of both tables are read before records of both. What was consumed but is still stored counts
as a reference; it goes with a flush. One record that cannot be read could refer to any body: nothing is swept before that is settled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from iothub.base.errors import NotFoundError
from iothub.records import keys
from iothub.records.layout import missing_tables
from iothub_services.hbase import calls
from iothub_services.hbase.caller import Caller
from iothub_services.hbase.calls import Mutation, Scan
from iothub_services.hbase.pages import pages
from iothub_services.hbase.tables import Tables
from iothub_services.queues.hbase import references as of_hbase
from iothub_services.queues.hbase.bodies import FIRST_PIECE
from iothub_services.queues.hbase_bodies.marked import Marked
from iothub_services.queues.hbase_plain import references as of_plain

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
        CorruptRecordError: A record, an intent or a row is damaged, or of a future version.
        NotFoundError: There is no table of bodies.
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


def _references(caller: Caller, tables: Tables) -> References:
    there = set(caller.call(calls.table_names()))
    if tables.bodies not in there:
        raise NotFoundError(missing_tables(tables.bodies.decode()))
    for of_intents in (True, False):
        if tables.queues in there:
            yield from of_hbase.referenced(caller, tables.queues, of_intents=of_intents)
        if tables.queues_plain in there:
            yield from of_plain.referenced(caller, tables.queues_plain, of_intents=of_intents)
