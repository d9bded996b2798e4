"""Writes into the accounts that processes of workers have ended, so that the other hubs wait for none of them.

Knows no process: whoever saw one end says so. Blocks. Without it, the others find out by heartbeat, seconds later.
"""

from __future__ import annotations

from contextlib import closing

from iothub.base import log as logging
from iothub.base.errors import IotHubError
from iothub.config.datadir import DataDir
from iothub.config.sections import Config
from iothub_tenants.accounts import hubs
from iothub_tenants.accounts.bounds import bounds_of
from iothub_tenants.accounts.database import accounts_url
from iothub_tenants.accounts.hubs import ENDED, LEFT
from iothub_tenants.accounts.store import AccountStore

_PATIENCE_S = 5.0

log = logging.get(__name__)


class EndedWorkers:
    """`settings`, `data_dir`: those of the whole."""

    def __init__(self, settings: Config, data_dir: DataDir) -> None:
        self._settings = settings
        self._data_dir = data_dir

    def note_all(self) -> None:
        """No worker runs here: a start notes those of an earlier run that was killed. What they left behind is not waited for."""
        self._note(self._data_dir.workers())

    def note(self, number: int) -> None:
        """The process of one worker has ended."""
        self._note([DataDir.of_worker(self._data_dir.path, number)])

    def _note(self, workers: list[DataDir]) -> None:
        node, sql = self._settings.node, self._settings.sql
        incarnations = {worker.worker: worker.read_member() for worker in workers}
        known = {number: incarnation for number, incarnation in incarnations.items() if incarnation is not None}
        if not known:
            return
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
