"""Is HBase there, are our tables, and whose are they? All through the gateway.

Knows the layouts from `tables`, and one cell: each store has one in the row before all others of a table, put by compare-and-swap by the
first installation that uses it. What follows from another owner is `iothub.hub.stores.installation`'s.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import TypeVar

from iothub.base.errors import ConflictError, NotFoundError
from iothub.records import keys
from iothub.records.layout import missing_tables
from iothub.records.owner import Owner, decode_owner, encode_owner
from iothub_services.hbase import calls
from iothub_services.hbase.caller import Caller
from iothub_services.hbase.calls import Call
from iothub_services.hbase.refusals import NO_TABLE, HBaseError
from iothub_services.hbase.tables import FamilyLayout, TableLayout, Tables, differences, other_tables
from iothub_services.probing import Advice, Probe, probe_by

T = TypeVar("T")

ADVICE = Advice("hbase.thrift", "docs/guide/hbase.md#the-hub-does-not-reach-hbase")


def probe(caller: Caller) -> Probe:
    """List the tables: is HBase reached through a gateway, up to its master?"""
    return probe_by(lambda: f"lists {len(caller.call(calls.table_names()))} tables", ADVICE)


# --- are they there


class TableState(Enum):
    """How a table is."""

    OK = "ok"
    MISSING = "missing"
    DISABLED = "disabled"
    DIFFERENT = "different"


@dataclass(frozen=True, slots=True)
class TableStatus:
    """One table as the gateway shows it. `problems`: in what it is another one than ours."""

    name: str
    state: TableState
    regions: int = 0
    problems: tuple[str, ...] = ()


def table_status(caller: Caller, wanted: Sequence[TableLayout]) -> list[TableStatus]:
    """Return how our tables are, as far as Thrift 1 shows it: not the coprocessor and not the compaction in memory.

    Raises:
        BackendError: HBase cannot be reached, or refused.
    """
    there = set(caller.call(calls.table_names()))
    return [
        _status(caller, layout) if layout.name.encode() in there else TableStatus(layout.name, TableState.MISSING)
        for layout in wanted
    ]


def require_tables(caller: Caller, wanted: Sequence[TableLayout]) -> None:
    """See that our tables are there and ours, for a hub that is about to use them.

    Raises:
        BackendError: HBase does not answer.
        ConflictError: A table is another one than ours, or disabled.
        NotFoundError: A table is missing.
    """
    require_all(table_status(caller, wanted))


def require_all(found: Sequence[TableStatus]) -> None:
    """Raise ConflictError when one of these is another one than ours, NotFoundError when one is missing."""
    require_ours(found)
    missing = [each.name for each in found if each.state is TableState.MISSING]
    if missing:
        raise NotFoundError(missing_tables(*missing))


def require_ours(found: Iterable[TableStatus]) -> None:
    """Raise ConflictError when one of these is disabled, or another one than ours."""
    problems = [problem for each in found for problem in problems_of(each)]
    if problems:
        raise ConflictError(other_tables(problems))


def problems_of(status: TableStatus) -> list[str]:
    """Say what is wrong with a table that is there."""
    disabled = [f"{status.name} is disabled"] if status.state is TableState.DISABLED else []
    return [f"{status.name}: {problem}" for problem in status.problems] + disabled


def _status(caller: Caller, layout: TableLayout) -> TableStatus:
    name = layout.name.encode()
    if not caller.call(calls.is_enabled(name)):
        return TableStatus(layout.name, TableState.DISABLED)
    regions = caller.call(calls.regions(name))
    shown = {
        family.name.decode(): {
            "VERSIONS": str(family.versions),
            "TTL": str(family.ttl_s),
            "BLOOMFILTER": family.bloom.decode(),
        }
        for family in caller.call(calls.families(name))
    }
    found = TableLayout(
        layout.name,
        tuple(FamilyLayout(family, settings) for family, settings in shown.items()),
        splits=tuple(region.start for region in regions if region.start),
    )
    problems = tuple(differences(_as_shown(layout, next(iter(shown.values()), {})), found))
    state = TableState.DIFFERENT if problems else TableState.OK
    return TableStatus(layout.name, state, len(regions), problems)


def _as_shown(layout: TableLayout, shown: Iterable[str]) -> TableLayout:
    """Leave of a layout what Thrift 1 can show."""
    names = set(shown)
    families = tuple(
        FamilyLayout(family.name, {name: value for name, value in family.settings.items() if name in names})
        for family in layout.families
    )
    return replace(layout, families=families, settings={})


# --- whose are they


def owner_columns(tables: Tables) -> dict[bytes, bytes]:
    """Return in which tables, and there in which column, an owner is: a table for each store, whatever others that store has."""
    return {tables.state: b"s:i", tables.queue_index: b"i:i", tables.retained: b"r:i"}


def owners(caller: Caller, columns: Mapping[bytes, bytes]) -> dict[bytes, Owner | None]:
    """Return whose these tables are; None: nobody's yet. Raises BackendError, ConflictError, CorruptRecordError, NotFoundError."""
    asked = [calls.get_row(table, keys.META, (column,)) for table, column in columns.items()]
    found: dict[bytes, Owner | None] = {}
    for (table, column), row in zip(columns.items(), _answers(caller, asked), strict=True):
        cell = None if row is None else row.cells.get(column)
        found[table] = None if cell is None else decode_owner(cell.value, f"table {table.decode()}")
    return found


def claim(caller: Caller, columns: Mapping[bytes, bytes], owner: Owner) -> dict[bytes, Owner | None]:
    """Take those of these tables that are nobody's, and return whose they are then. May be repeated after it has failed. Raises as `owners`."""
    free = [table for table, has in owners(caller, columns).items() if has is None]
    value = encode_owner(owner)
    caller.call_all(
        [calls.check_and_put(table, keys.META, columns[table], None, (columns[table], value)) for table in free]
    )
    return owners(caller, columns)


def _answers(caller: Caller, asked: Sequence[Call[T]]) -> list[T]:
    try:
        return caller.call_all(asked)
    except HBaseError as error:
        if error.java_class == NO_TABLE:
            raise NotFoundError(missing_tables(error.text)) from error
        raise
