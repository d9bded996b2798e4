"""How long a SQL server is waited for, and how many connections to it there are. Knows no server."""

from __future__ import annotations

from dataclasses import dataclass, replace

from iothub.config.sections import Sql


@dataclass(frozen=True, slots=True)
class SqlBounds:
    """Of one process. SQLite has its own.

    Attributes:
        connections: Maximum number at once; whoever needs another one waits for at most `timeout_s`.
        connect_timeout_s: Until a new connection is there.
        timeout_s: Until a statement is answered, lock included; the socket is given up a little later.
        recycle_s: A connection that is older is replaced before it is used again.
        lock_tries: How often a transaction waits `timeout_s` for the lock of all writers.
    """

    connections: int = 8
    connect_timeout_s: float = 5.0
    timeout_s: float = 5.0
    recycle_s: float = 1800.0
    lock_tries: int = 4

    def within(self, seconds: float) -> SqlBounds:
        """Return the same for somebody who waits no longer than that."""
        return replace(
            self,
            connect_timeout_s=min(self.connect_timeout_s, seconds),
            timeout_s=min(self.timeout_s, seconds),
            lock_tries=1,
        )

    @property
    def statement_s(self) -> float:
        """Longer than a lock is waited for, or the server would not say that it was a lock."""
        return self.timeout_s + 0.5

    @property
    def paused_s(self) -> float:
        """Until the server takes a transaction, with its locks, from a process that is paused: by default, four waits for a lock are longer."""
        return 3 * self.timeout_s

    @property
    def socket_s(self) -> float:
        """The server has more time than a statement, to say itself that it took too long."""
        return self.timeout_s + 1.0


def bounds_of(sql: Sql) -> SqlBounds:
    """Return what the settings say."""
    return SqlBounds(sql.connections, sql.connect_timeout_s, sql.timeout_s, sql.recycle_s)
