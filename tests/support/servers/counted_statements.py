"""Counts what is asked of an accounts database: statements and commits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from sqlalchemy import event

from iothub_tenants.accounts.store import AccountStore


@dataclass(slots=True)
class Counted:
    """The texts of the statements, one for an `executemany`, and the number of writing transactions."""

    statements: list[str] = field(default_factory=list)

    @property
    def commits(self) -> int:
        """Each begins by moving the counter `change`."""
        return sum(statement.startswith("UPDATE id_block") for statement in self.statements)


@contextmanager
def counted_statements(store: AccountStore) -> Iterator[Counted]:
    counted = Counted()

    def note(_connection: object, _cursor: object, statement: str, *_more: object) -> None:
        counted.statements.append(statement)

    event.listen(store.engine, "before_cursor_execute", note)
    try:
        yield counted
    finally:
        event.remove(store.engine, "before_cursor_execute", note)
