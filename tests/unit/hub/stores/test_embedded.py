"""`iothub.hub.stores.embedded`: a hub has its files itself, a worker asks the store process for them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from iothub.base.errors import UnavailableError
from iothub.config.datadir import DataDir
from iothub.config.sections import Config, Node
from iothub.hub.stores.choices import needs_store_process
from iothub.hub.stores.drivers import Drivers
from iothub.hub.stores.embedded import OfStoreProcess
from iothub.hub.stores.installation import Installation
from iothub.testing.clock import ManualClock
from iothub_services.hbase.caller import Caller
from iothub_services.sqlite.database import Database, Schema, open_database
from tests.support.hubs.store_processes import store_process

SETTINGS = replace(Config(), node=Node(workers=2))


def open_file(path: Path, schema: Schema) -> Database:
    return open_database(path, schema, ManualClock(), lambda _word, _text: None)


def nobody() -> Caller:
    raise AssertionError("there is no HBase")


def drivers(data_dir: DataDir) -> Drivers:
    return Drivers(SETTINGS, data_dir, open_file, nobody, lambda: cast("Installation", None))


def test_log_of_a_worker_is_shared_and_opens_no_file(tmp_path: Path) -> None:
    worker = DataDir.of_worker(tmp_path, 1)
    chosen = drivers(worker)

    logs = chosen.event_log(), chosen.followed_log()

    assert [log.is_shared for log in logs] == [True, True]
    assert list(tmp_path.iterdir()) == []
    for log in logs:
        log.close()


def test_log_of_a_hub_with_one_process_is_its_own(tmp_path: Path) -> None:
    chosen = drivers(DataDir(tmp_path))

    log = chosen.event_log()

    assert not log.is_shared
    assert chosen.needed == {}
    log.close()


def test_worker_waits_for_the_store_process(tmp_path: Path) -> None:
    worker = DataDir.of_worker(tmp_path, 1)
    chosen = drivers(worker)

    assert list(chosen.needed) == ["the store process"]
    with pytest.raises(UnavailableError, match="the store process is away: it is not reached"):
        chosen.needed["the store process"]()


def test_what_the_store_process_has_found_out_is_an_alarm_of_each_worker(tmp_path: Path) -> None:
    """Its files were opened before the workers came."""
    alarms: list[tuple[str, str]] = []
    with store_process(tmp_path) as process:
        process.server.notices.append(("store_corrupt", "queues.db was set aside"))
        log = OfStoreProcess(process.path, lambda word, text: alarms.append((word, text))).events()
        log.trim((0,))
        log.close()

    assert alarms == [("store_corrupt", "queues.db was set aside")]


def test_stores_on_servers_need_the_process_for_the_quota_ledger_alone(tmp_path: Path) -> None:
    on_servers = replace(
        SETTINGS,
        events=replace(SETTINGS.events, driver="kafka"),
        queues=replace(SETTINGS.queues, driver="redis"),
        state=replace(SETTINGS.state, driver="hbase"),
        retained=replace(SETTINGS.retained, driver="hbase"),
    )

    assert needs_store_process(SETTINGS, DataDir(tmp_path))
    assert needs_store_process(on_servers, DataDir(tmp_path))
    assert not needs_store_process(
        replace(on_servers, quota=replace(on_servers.quota, ledger="redis")), DataDir(tmp_path)
    )
