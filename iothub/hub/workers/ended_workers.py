"""Writes into the accounts that processes of workers have ended, so that the other hubs wait for none of them.

Knows no process: whoever saw one end says so. Without it, the others find out by heartbeat, seconds later.

Invariant: which incarnation has ended is read before the next one starts, which writes its own over it.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing

from iothub.base import log as logging
from iothub.base.errors import IotHubError
from iothub.config.datadir import DataDir
from iothub.config.sections import Config

_PATIENCE_S = 5.0

Incarnations = Mapping[int, int]
"""By the number of the worker."""

log = logging.get(__name__)


class EndedWorkers:
    """`settings`, `data_dir`: those of the whole."""

    def __init__(self, settings: Config, data_dir: DataDir) -> None:
        self._settings = settings
        self._data_dir = data_dir

    def of_all(self) -> Incarnations:
        """Return those of an earlier run that was killed. No worker runs here now."""
        return self._read(self._data_dir.workers())

    def of(self, number: int) -> Incarnations:
        """Return the one whose process has just ended."""
        return self._read([DataDir.of_worker(self._data_dir.path, number)])

    @staticmethod
    def _read(workers: list[DataDir]) -> Incarnations:
        incarnations = {worker.worker: worker.read_member() for worker in workers}
        return {number: incarnation for number, incarnation in incarnations.items() if incarnation is not None}

    def note(self, known: Incarnations) -> None:
        """Write that they have ended; of one that has a successor by now nothing is written. In a thread: the accounts may keep it waiting."""
        if not known:
            return
        from iothub_tenants.accounts import hubs  # SQLAlchemy: the workers start meanwhile
        from iothub_tenants.accounts.bounds import bounds_of
        from iothub_tenants.accounts.database import accounts_url
        from iothub_tenants.accounts.hubs import ENDED, LEFT
        from iothub_tenants.accounts.store import AccountStore

        node, sql = self._settings.node, self._settings.sql
        try:
            url, bounds = accounts_url(sql.url_file, self._data_dir.accounts), bounds_of(sql).within(_PATIENCE_S)
            with closing(AccountStore(url, bounds=bounds)) as store:
                for number, incarnation in known.items():
                    why = ENDED if number <= node.workers else LEFT  # there are fewer workers than there were
                    hubs.note_ended(store, node.number + number - 1, incarnation, why)
        except IotHubError as error:
            log.warning(
                "could not note that a worker has ended; the others will notice by heartbeat timeout", cause=str(error)
            )
