"""The machine of the REST API: what the API shows and does here, by the functions of the commands.

Knows no HTTP.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from iothub.admin import runs
from iothub.base import log as logging
from iothub.base.errors import IotHubError
from iothub.cli import config, doctor, events, stores, stream_topics, version
from iothub.config.changes import changes_between
from iothub.config.datadir import DataDir
from iothub.config.loader import Loaded
from iothub.config.sections import Config
from iothub.jobs import control, specs
from iothub.jobs.places import Places
from iothub_services.streams.port import Direction, Stream
from iothub_tenants.accounts.job_runs import Run
from iothub_tenants.accounts.store import AccountStore

if TYPE_CHECKING:
    from iothub.cli.app import App

Row = dict[str, object]
log = logging.get(__name__)

_PROGRAM = "from iothub.cli.entry import main; main()"
_EXTRAS = {
    "admin": "fastapi",
    "hbase": "happybase",
    "kafka": "kafka",
    "mysql": "pymysql",
    "postgresql": "psycopg",
    "redis": "redis",
    "spark": "pyspark",
}


class ServedMachine:
    """May be used from any thread: it opens what it needs for each call."""

    def __init__(self, app: App, flags: Sequence[str]) -> None:
        self._app = app
        self._data_dir: DataDir = app.data_dir
        self._loaded: Loaded = app.loaded
        self._flags = tuple(flags)
        self._reloading = Lock()
        self._reloaded_at = app.data_dir.last_reload()

    def config(self) -> Config:
        with self._reloading:
            at = self._data_dir.last_reload()
            if at != self._reloaded_at:
                self._reloaded_at = at
                self._reload()
            return self._loaded.config

    def _reload(self) -> None:
        """Take what may change while the hub runs, as the hub has done."""
        try:
            found = self._app.load_checked(self._flags).loaded
        except IotHubError as error:
            log.error("configuration refused; the API keeps its settings", mistake=str(error))
            return
        self._loaded = replace(found, config=changes_between(self._loaded.config, found.config).config)
        logging.configure(level=self._loaded.config.log.level, form=self._loaded.config.log.format)
        log.info("configuration reloaded")

    def settings(self) -> list[Row]:
        return config.rows(self._loaded.values(), is_text=False)

    def features(self) -> Row:
        settings = self._loaded.config
        return {
            **version.facts_of_program(),
            "extras": [name for name, module in _EXTRAS.items() if importlib.util.find_spec(module) is not None],
            "drivers": {
                "events": settings.events.driver,
                "queues": settings.queues.driver,
                "retained": settings.retained.driver,
                "state": settings.state.driver,
                "quota_ledger": settings.quota.ledger,
            },
        }

    def event_lag(self) -> list[Row]:
        with events.reading(self._data_dir, self._loaded.config) as log:
            return events.lag_rows(log, stores.applied_offsets(self._data_dir, self._loaded.config))

    def findings(self) -> list[Row]:
        return [doctor.row(finding) for finding in doctor.findings(self._app, self._loaded.config)]

    def start_run(
        self, store: AccountStore, job: str, *, is_full: bool, is_dry_run: bool, options: Sequence[str]
    ) -> Run:
        specs.read_options(specs.entry_of(job), options, is_full=is_full, is_dry_run=is_dry_run)
        words = ["job", "run", job]
        words += ["--full"] if is_full else []
        words += ["--dry-run"] if is_dry_run else []
        words += [word for option in options for word in ("--option", option)]
        words += [word for flag in self._flags for word in ("--set", flag)]
        return control.start_run(store, [*self._program(), *words], job)

    def cancel_run(self, run: Run) -> None:
        control.cancel_run(run)

    def read_log(self, run: Run) -> bytes:
        return Places(self._data_dir.path).read_log(run.id)

    def read_report(self, run: Run) -> str:
        return runs.read_report(run, specs.archive_of(self._loaded.config, self._data_dir))

    def create_stream(
        self,
        store: AccountStore,
        tenant: str,
        name: str,
        topic_filter: str,
        *,
        direction: Direction,
        partitions: int | None,
        retention_s: float | None,
    ) -> Row:
        return stream_topics.created(
            store,
            self._loaded.config,
            self._data_dir,
            tenant,
            name,
            topic_filter,
            direction=direction,
            partitions=partitions,
            retention_s=retention_s,
        )

    def delete_stream(self, store: AccountStore, stream: Stream, *, is_topic_kept: bool) -> None:
        stream_topics.delete(self._loaded.config, self._data_dir, store, stream, is_topic_kept=is_topic_kept)

    def stream_row(self, stream: Stream) -> Row:
        return stream_topics.row(self._loaded.config, stream)

    def _program(self) -> list[str]:
        file: Path | None = self._app.config_file
        given = [] if file is None else ["--config", str(file.absolute())]
        return [sys.executable, "-c", _PROGRAM, "--data-dir", str(self._data_dir.path.absolute()), *given]
