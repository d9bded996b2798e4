"""The unique-id generator (B50, B66): 64-bit queue ids that rise and are never issued twice, not even after a crash.

Knows no queue. The counter in SQL moves by a whole block before the first id of that block is given out; a killed process loses the
rest of its block.
"""

from __future__ import annotations

from threading import Lock

from sqlalchemy import select, update

from iothub.base.ids import QueueId, TenantId
from iothub_tenants.accounts.database import WRITE
from iothub_tenants.accounts.store import AccountStore
from iothub_tenants.accounts.tables import id_block

BLOCK = 1024


class BlockSource:
    """Gives out ids from one block at a time, for all tenants of this process. May be used from any thread.

    Invariants: every id is given once; ids of one source rise strictly.
    """

    def __init__(self, store: AccountStore, size: int = BLOCK) -> None:
        self._asked = store.asked
        self._engine = store.engine.execution_options(**{WRITE: True})
        self._size = size
        self._lock = Lock()
        self._is_shared = False
        self._is_outdated = False  # others have taken ids since this block was
        self._next = 0
        self._end = 0

    def allocate(self) -> int:
        """Return the next id; once per block this is a transaction.

        Raises:
            BackendError: a new block was needed and the database did not answer.
        """
        with self._lock:
            if self._is_shared:
                self._next, self._end = self._reserve(1)
            elif self._is_outdated or self._next == self._end:
                self._next, self._end = self._reserve(self._size)
                self._is_outdated = False
            allocated = self._next
            self._next += 1
            return allocated

    def allocate_nowait(self) -> int | None:
        """Return the next id without waiting; None: a transaction is needed, call `allocate` in a thread."""
        if not self._lock.acquire(blocking=False):
            return None
        try:
            if self._is_shared or self._is_outdated or self._next == self._end:
                return None
            allocated = self._next
            self._next += 1
            return allocated
        finally:
            self._lock.release()

    def share(self, is_shared: bool) -> None:
        """Other hubs take ids now, too: each is taken when it is needed, so that whichever is given out later is higher. Or they do no longer."""
        self._is_outdated |= (
            is_shared or self._is_shared
        )  # at the end, too: a block may have been under way at the beginning
        self._is_shared = is_shared

    def _reserve(self, size: int) -> tuple[int, int]:
        is_it = id_block.c.name == "queue"
        with self._asked(), self._engine.begin() as connection:
            connection.execute(update(id_block).where(is_it).values(next=id_block.c.next + size))
            end = connection.execute(select(id_block.c.next).where(is_it)).scalar_one()
        return end - size, end


class QueueIds:
    """One tenant's generator: what its broker asks for the id of a new persistent session's queue."""

    def __init__(self, tenant_id: TenantId, source: BlockSource) -> None:
        self.tenant_id = tenant_id
        self.issued = 0
        self._source = source

    def allocate(self) -> QueueId:
        """Return a new id; may block. Raises BackendError."""
        allocated = self._source.allocate()
        self.issued += 1
        return QueueId(allocated)

    def allocate_nowait(self) -> QueueId | None:
        """Return a new id, or None where `allocate` would have to wait."""
        allocated = self._source.allocate_nowait()
        if allocated is None:
            return None
        self.issued += 1
        return QueueId(allocated)
