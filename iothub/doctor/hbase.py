"""HBase: each gateway's answer, the hub's tables, a read, and whether the queue coprocessor is loaded.

Knows tables and calls; reads a row key that no data has, and writes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from iothub.base.units import Endpoint
from iothub.config.sections import HBase
from iothub.doctor.findings import Check, Finding, State, of_probe, timed
from iothub.records.layout import CREATE_TABLES
from iothub_services.hbase import calls, from_settings
from iothub_services.hbase.administration import TableState, TableStatus, probe, problems_of, table_status
from iothub_services.hbase.caller import Caller
from iothub_services.hbase.tables import TableLayout, Tables
from iothub_services.queues.hbase import requests as hbase_requests
from iothub_services.queues.hbase.store import COPROCESSOR_MISSING
from iothub_services.queues.port import EARLIEST

_SILENT_S = 5.0  # an operator waits, no message does
_NOBODY = b"\0"  # no row of ours is so short


def checks(settings: HBase, wanted: Sequence[TableLayout]) -> list[Check]:
    """`wanted`: the tables that the chosen drivers use."""
    patient = replace(settings, timeout_s=min(settings.timeout_s, _SILENT_S))
    return [
        *(Check(f"HBase gateway {each}", partial(_gateway, each, patient, wanted)) for each in settings.thrift),
        Check("HBase tables", lambda: _tables(patient, wanted)),
    ]


def _gateway(gateway: Endpoint, settings: HBase, wanted: Sequence[TableLayout]) -> Iterator[Finding]:
    """Ask something that reaches the master, and read from a region server. With several gateways, one that is down is a warning."""
    name = f"HBase gateway {gateway}"
    with from_settings.direct_caller(replace(settings, thrift=(gateway,))) as caller:
        found = probe(caller)
        yield of_probe(name, found, State.WARN if len(settings.thrift) > 1 else State.FAIL)
        if not found.is_reached:
            return
        tables = caller.call(calls.table_names())
        readable = [layout.name.encode() for layout in wanted if layout.name.encode() in tables]
        if readable:
            get = calls.get_row(readable[0], _NOBODY)
            caller.call(get)  # the first one finds out where the region is
            _, seconds = timed(lambda: caller.call(get))
            yield Finding(f"{name}, a read", State.OK, f"of {readable[0].decode()}", seconds=seconds)


def _tables(settings: HBase, wanted: Sequence[TableLayout]) -> Iterator[Finding]:
    with from_settings.direct_caller(settings) as caller:
        found = probe(caller)
        if not found.is_reached:
            yield of_probe("HBase tables", found)
            return
        for status in table_status(caller, wanted):
            yield _table(status)
            names = Tables(settings.namespace)
            if status.state is TableState.OK and status.name.encode() == names.queues:
                yield _coprocessor(caller, names.queues)


def _table(status: TableStatus) -> Finding:
    name = f"HBase table {status.name}"
    if status.state is TableState.MISSING:
        return Finding(name, State.FAIL, "does not exist", CREATE_TABLES)
    if problems := problems_of(status):
        advice = "alter or drop it in HBase's shell, or choose another hbase.namespace"
        return Finding(name, State.FAIL, "; ".join(problems), advice)
    return Finding(name, State.OK, f"layout is correct, {status.regions} regions")


def _coprocessor(caller: Caller, table: bytes) -> Finding:
    name = "HBase queue coprocessor"
    what_was_due_in_1970 = hbase_requests.due(0, 1, *EARLIEST)
    get = calls.get_row(table, _NOBODY, (hbase_requests.DUE,), {hbase_requests.ASKED: what_was_due_in_1970})
    row, seconds = timed(lambda: caller.call(get))
    if row is not None and hbase_requests.DUE in row.cells:
        return Finding(name, State.OK, "answers", seconds=seconds)
    return Finding(
        name, State.FAIL, f"table {table.decode()} answers, but without the coprocessor", COPROCESSOR_MISSING, seconds
    )
