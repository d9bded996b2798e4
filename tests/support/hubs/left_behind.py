"""The session-event log and the session states of a data directory, to be written as a hub would have left them.

Knows no hub: tests of what reads them without one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

from iothub.base.clock import SystemClock
from iothub.config.datadir import DataDir
from iothub.config.sections import Config
from iothub.hub.stores.drivers import Drivers
from iothub.hub.stores.installation import installation_of
from iothub_services.events.port import EventLog
from iothub_services.hbase import from_settings
from iothub_services.sqlite.database import Database, Schema, open_database
from iothub_services.state.port import StateStore


class LeftBehind(NamedTuple):
    """What a hub has written."""

    log: EventLog
    states: StateStore


@contextmanager
def left_behind(data_dir: DataDir, settings: Config | None = None) -> Iterator[LeftBehind]:
    """Open both for work."""
    settings = settings or Config()
    with ExitStack() as stack:

        def opened(path: Path, schema: Schema) -> Database:
            database = open_database(path, schema, SystemClock(), _fail)
            stack.callback(database.close)
            return database

        drivers = Drivers(
            settings,
            data_dir,
            opened,
            lambda: stack.enter_context(from_settings.direct_caller(settings.hbase)),
            partial(installation_of, settings, data_dir),
            _fail,
        )
        log, states = drivers.event_log(), drivers.states()
        stack.callback(log.close)
        for owned in drivers.owned.values():
            owned.check()
        yield LeftBehind(log, states)


def _fail(name: str, text: str) -> None:
    if text:
        raise AssertionError((name, text))
