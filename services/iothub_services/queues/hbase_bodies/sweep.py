"""Mark and sweep of the bodies of a namespace: what no queue refers to is deleted.

Knows tables and what refers to bodies; knows neither whose turn it is nor when.

Theory: a body is durable before anything refers to it, and its references are made within the seconds in which a hub repeats an append. So
what is younger than `LEAST_AGE_S` is spared, by the time that HBase gave its cells. An open intent may refer to an older one: its reference
moves to records before it is closed, so intents are read before records. What was consumed but is still stored counts
as a reference; it goes with a flush. A damaged record refers to nothing, for readers pass it over.
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
from iothub_services.queues.hbase.bodies import FIRST_PIECE
from iothub_services.queues.hbase.references import referenced
from iothub_services.queues.hbase_bodies.marked import Marked

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


def _references(caller: Caller, tables: Tables) -> References:
    missing = {tables.queues, tables.bodies}.difference(caller.call(calls.table_names()))
    if missing:
        raise NotFoundError(missing_tables(*sorted(name.decode() for name in missing)))
    for of_intents in (True, False):
        yield from referenced(caller, tables.queues, of_intents=of_intents)
