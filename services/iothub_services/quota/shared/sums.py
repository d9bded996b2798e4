"""Calendar windows that several hubs use together: each reports what it has used, and reads what the others have.

Knows no limits and no durability: the cells of `usage` are kept by each hub as on one machine; after a loss of Redis all report theirs again.
A hub learns the others' use once a turn, so a window may be exceeded by what they use in one turn.
"""

from __future__ import annotations

from itertools import islice

from iothub_services.quota.grammar import DAY_S
from iothub_services.quota.shared import scripts
from iothub_services.quota.shared.lease import LapsedError, Lease
from iothub_services.quota.usage import Cell, Usage

BATCH = 200


class SharedWindows:
    """On the reactor thread. `usage` is made with `is_shared`."""

    def __init__(self, lease: Lease, usage: Usage) -> None:
        self._lease = lease
        self._usage = usage

    def change_all(self) -> None:
        """Report everything again."""
        self._usage.unreported.update(dict.fromkeys(self._usage.cells))

    async def report(self) -> None:
        """Report a batch of changes. Raises LapsedError, BackendError."""
        unreported = self._usage.unreported
        cells = list(islice(unreported, BATCH))
        if not cells:
            return
        anew = {cell for cell in cells if cell.is_anew}
        for cell in cells:  # what changes from now on is reported with the next turn
            del unreported[cell]
            cell.is_anew = False
        try:
            await self._add_up(cells, anew)
        except BaseException:
            unreported.update(dict.fromkeys(cells))
            for cell in anew:
                cell.is_anew = True
            raise

    async def _add_up(self, cells: list[Cell], anew: set[Cell]) -> None:
        names = [self._lease.keys.window(cell.key, cell.start) for cell in cells]
        arguments = [part for cell in cells for part in (cell.used, cell.end + DAY_S, int(cell in anew))]
        answer = await self._lease.ask(scripts.ADD_UP, names, self._lease.place, *arguments)
        if len(answer) != 1 + len(cells):
            raise LapsedError("unexpected answer of the quota ledger")
        for cell, others in zip(cells, answer[1:], strict=True):
            cell.elsewhere = int(others) if isinstance(others, bytes) else 0
