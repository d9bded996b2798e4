"""Calls that change which tables there are: tests make and drop tables through the gateway, the product does not.

Knows Thrift 1's verbs alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from iothub_services.hbase import replies, thrift
from iothub_services.hbase.calls import Call, Verb
from iothub_services.hbase.refusals import Effect


def create_table(table: bytes, families: Sequence[bytes]) -> Call[None]:
    """Create a table in one region, one version per cell."""
    described = [
        _text(1, family + b":") + thrift.field(thrift.I32, 2) + thrift.i32(1) + thrift.END for family in families
    ]
    return _call("createTable", table, thrift.field(thrift.LIST, 2) + thrift.structs(described))


def enable_table(table: bytes) -> Call[None]:
    return _call("enableTable", table)


def disable_table(table: bytes) -> Call[None]:
    return _call("disableTable", table)


def delete_table(table: bytes) -> Call[None]:
    """Delete a table that is disabled."""
    return _call("deleteTable", table)


def _call(name: str, table: bytes, more: bytes = b"") -> Call[None]:
    head = (thrift.VERSION_1 | thrift.CALL).to_bytes(4, "big") + thrift.text(name.encode())
    verb = Verb(name, Effect.ROW, replies.read_nothing, thrift.STOP, head)
    return Call(verb, _text(1, table) + more + thrift.END, table)


def _text(number: int, value: bytes) -> bytes:
    return thrift.field(thrift.STRING, number) + thrift.text(value)
