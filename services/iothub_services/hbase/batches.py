"""Writing many rows: those of one timestamp together, in calls of bounded size, some on their way at once.

Knows no table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from iothub_services.hbase.caller import Caller
from iothub_services.hbase.calls import Call, Mutation, mutate_row, mutate_rows
from iothub_services.hbase.pages import chunks

_CALLS = 16  # of about a megabyte, on their way at once


def change_rows(caller: Caller, table: bytes, places: Mapping[int | None, Sequence[Mutation]]) -> None:
    """Change rows, by timestamp (None: HBase's own time). No row may be there twice: nobody says which change comes first.

    Raises BackendError: of the first call that failed; the others are done all the same.
    """
    made = [
        _call(table, mutations[chunk], timestamp)
        for timestamp, mutations in places.items()
        for chunk in chunks([_size(each) for each in mutations])
    ]
    for start in range(0, len(made), _CALLS):
        caller.call_all(made[start : start + _CALLS])


def _call(table: bytes, mutations: Sequence[Mutation], timestamp: int | None) -> Call[None]:
    """One row alone is changed as a whole or not at all, and a refusal says so."""
    if len(mutations) == 1:
        row, puts, deletes = mutations[0]
        return mutate_row(table, row, puts, deletes, timestamp)
    return mutate_rows(table, mutations, timestamp)


def _size(mutation: Mutation) -> int:
    return len(mutation.row) + sum(map(len, mutation.puts.values()))
