"""Rows of the accounts on their way out of one database and into another: in the order of their keys, column by column.

Knows no column by name: `copying` takes tables as they are, `transfer` and `device_import` the columns that a tenant takes along.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Connection, Select, Table, select

from iothub.base.errors import ConfigError

T = TypeVar("T")
Row = Mapping[str, Any]

_EXPECTED = {str: "a text", int: "a number", bool: "true or false", list: "a list"}


def in_order(table: Table) -> Select[Any]:
    """Select whole rows by their primary keys."""
    return select(table).order_by(*table.primary_key.columns)


@dataclass(frozen=True, slots=True)
class Part:
    """A list in the document of a tenant: of its rows in a table these columns, separated by blanks."""

    name: str
    table: Table
    columns: str

    def rows(self, connection: Connection, where: ColumnElement[bool]) -> list[Row]:
        return [row._asdict() for row in connection.execute(in_order(self.table).where(where))]

    def pick(self, row: Row) -> dict[str, Any]:
        return {column: row[column] for column in self.columns.split()}

    def of(self, connection: Connection, tenant_id: int) -> list[dict[str, Any]]:
        """Return a tenant's rows, ready for JSON."""
        return [self.pick(row) for row in self.rows(connection, self.table.c.tenant_id == tenant_id)]

    def found_in(self, document: Row) -> Iterator[tuple[str, Row]]:
        """Yield each row with its place in a document that somebody else wrote. Raises ConfigError."""
        for place, given in enumerate(value(document, self.name, list)):
            where = f"{self.name}[{place}]"
            yield where, self.checked(given, where)

    def checked(self, given: object, where: str) -> Row:
        """Return a row whose columns have values of their types; what else is in it is nobody's. Raises ConfigError."""
        row = mapping(given, where)
        for column in self.columns.split():
            value(row, column, self.table.c[column].type.python_type, where)
        return row


def mapping(given: object, where: str) -> Row:
    if not isinstance(given, Mapping):
        raise damaged(where, "an object")
    return given


def value(row: Row, name: str, kind: type[T], where: str = "") -> T:
    """Return a value that is of this type and no other: true is no number. Raises ConfigError."""
    found = row.get(name)
    if type(found) is not kind:
        raise damaged(f"{where}.{name}".lstrip("."), _EXPECTED[kind])
    return found


def words(row: Row, name: str, where: str) -> tuple[str, ...]:
    """Return a list of texts. Raises ConfigError."""
    found = row.get(name)
    if not isinstance(found, list) or not all(isinstance(word, str) for word in found):
        raise damaged(f"{where}.{name}".lstrip("."), "a list of texts")
    return tuple(found)


def damaged(where: str, expected: str) -> ConfigError:
    return ConfigError(f"the exported tenant is damaged at {where}: expected {expected}")
