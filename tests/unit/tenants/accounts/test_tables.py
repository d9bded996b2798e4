"""The tables' own promises: ids are counted, names are compared byte by byte in every database."""

from __future__ import annotations

from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.schema import CreateTable

from iothub_tenants.accounts import tables


def test_ids_are_never_used_again() -> None:
    """Without AUTOINCREMENT SQLite gives the id of a deleted last row to the next one."""
    for table in (tables.tenant, tables.device, tables.acl_rule, tables.change_log):
        assert "AUTOINCREMENT" in str(CreateTable(table).compile(dialect=sqlite.dialect())), table.name


def test_names_are_compared_byte_by_byte_in_mysql() -> None:
    """Its default collations take Dev1 for dev1."""
    text = str(CreateTable(tables.device).compile(dialect=mysql.dialect()))

    assert "name VARCHAR(128) COLLATE utf8mb4_bin" in text


def test_every_table_can_be_created_in_every_database() -> None:
    """SQLite first, the others by url."""
    for dialect in (sqlite.dialect(), mysql.dialect(), postgresql.dialect()):
        for table in tables.metadata.sorted_tables:
            assert table.name in str(CreateTable(table).compile(dialect=dialect))
