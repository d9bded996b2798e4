"""Once a day one hub of a namespace deletes the bodies in HBase that no queue refers to any more.

Knows neither rows nor the lease: `iothub_services.queues.hbase.body_sweep` does. It works on a thread and a connection of its own, a small
part of the time, so that publishes hardly notice.
"""

from __future__ import annotations

from threading import Event

from iothub.base import log as logging
from iothub.base.clock import Clock
from iothub.base.errors import InterruptedWorkError
from iothub.config.sections import HBase
from iothub_services.auth.port import Run
from iothub_services.hbase import from_settings
from iothub_services.hbase.tables import Tables
from iothub_services.metrics import metrics
from iothub_services.metrics.exposition import Registry
from iothub_services.queues.hbase.body_sweep import USUAL_AGE_S, Swept, sweep_leased

log = logging.get(__name__)

LOOK_INTERVAL_S = 600.0
_REST = 9  # times as long as a page has taken
_MOST_REST_S = 5.0


class BodySweep:
    """On the reactor thread, but for `_sweep`."""

    def __init__(self, settings: HBase, run: Run, registry: Registry, clock: Clock) -> None:
        self._settings = settings
        self._run = run
        self._clock = clock
        self._is_stopping = Event()
        self._deleted = 0
        registry.feed(metrics.HBASE_BODIES_SWEPT, lambda: self._deleted)

    async def run_once(self) -> None:
        """Sweep if it is time and nobody else does. Raises BackendError, CorruptRecordError: it is tried again at the next run."""
        swept = await self._run("sweep.bodies", self._sweep)
        if swept is not None:
            log.info("bodies swept", bodies=swept.bodies, referenced=swept.referenced, deleted=swept.deleted)

    def stop(self) -> None:
        """Let a sweep end at its next page."""
        self._is_stopping.set()

    def _sweep(self) -> Swept | None:
        settings = self._settings
        before, page_began = 0, self._clock.monotonic()

        def rest(swept: Swept) -> None:
            nonlocal before, page_began
            self._deleted += swept.deleted - before
            before = swept.deleted
            took_s = self._clock.monotonic() - page_began
            if self._is_stopping.wait(min(took_s * _REST, _MOST_REST_S)):
                raise InterruptedWorkError("the hub stops; the sweep begins again at another hub or at the next start")
            page_began = self._clock.monotonic()

        with from_settings.direct_caller(settings) as caller:
            tables = Tables(settings.namespace)
            try:
                return sweep_leased(
                    caller, tables, USUAL_AGE_S, rest, self._clock.monotonic, every_s=settings.sweep_interval_s
                )
            except InterruptedWorkError:
                return None
