"""Is HBase reached through a gateway, up to its master? Knows the caller and no table."""

from __future__ import annotations

from iothub_services.hbase.caller import Caller
from iothub_services.hbase.calls import table_names
from iothub_services.probing import Advice, Probe, probe_by

ADVICE = Advice("hbase.thrift", "docs/guide/hbase.md#the-hub-does-not-reach-hbase")


def probe(caller: Caller) -> Probe:
    """List the tables."""
    return probe_by(lambda: f"lists {len(caller.call(table_names()))} tables", ADVICE)
