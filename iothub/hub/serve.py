"""A process of `iothub serve`, from the lock on the data directory to its release: a hub, one worker of several, or the supervisor of these.

Knows what a start looks at first, and no part of a hub: `iothub.hub.hub_process` runs one, `iothub.hub.workers.supervisor` several. Each is loaded
by the process that is it: what is loaded is most of the time that a start takes.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from twisted.internet.main import installReactor

from iothub.base import log
from iothub.config.datadir import DataDir, Lock
from iothub.config.sections import Config
from iothub.config.workers import node_numbers
from iothub.hub import twisted_log
from iothub.hub.from_settings import configure_log
from iothub.hub.phase import Phase
from iothub.hub.stores.choices import needs_store_process
from iothub.hub.stores.needs import require_descriptors, room_bytes
from iothub.hub.stores.startable import require_startable
from iothub.hub.workers.api_process import ApiProcess
from iothub.hub.workers.service_manager import ServiceManager
from iothub.hub.workers.supervised import BEAT_S, NewsReader, Reporter
from iothub.net.backend import select_backend
from iothub.net.descriptors import file_limit, raise_file_limit
from iothub.net.hub_reactor import HubReactor

if TYPE_CHECKING:
    from iothub.hub.reload import Read


def serve(
    settings: Config,
    data_dir: DataDir,
    read: Read,
    *,
    api_command: Sequence[str] = (),
    is_fail_fast: bool = False,
    is_only_checked: bool = False,
    is_draining: bool = False,
) -> int:
    """Run one hub on a data directory until SIGTERM or SIGINT; returns the exit code, BEGIN_AGAIN or BEGIN_AGAIN_DRAINING.

    `read`: reads the settings again, for a reload. `api_command`: of the REST API's process; empty: there is none.
    `is_fail_fast`: do not wait for servers that must answer before the start.
    `is_only_checked`: look for what keeps a hub from starting here, and start none. `is_draining`: it begins again, and drained before.

    Raises: ConflictError (somebody else runs on it, future schema), UnavailableError (port in use, directory not writable), ConfigError.
    """
    raise_file_limit()
    require_descriptors(settings, file_limit())
    lock = data_dir.lock("iothub serve", room_bytes(settings, data_dir))
    try:
        require_startable(settings, data_dir)
        if is_only_checked:
            return 0
        data_dir.remove_api()  # of a hub that was killed
        if settings.node.workers > 1:
            return _supervise(settings, data_dir, lock, api_command)
        reactor = _install_reactor(settings)
        from iothub.hub.hub_process import HubProcess, make_parts

        parts = make_parts(settings, data_dir, reactor, Phase(is_draining=is_draining), is_fail_fast=is_fail_fast)
        api = ApiProcess(api_command, data_dir, reactor)

        def announce(address: str) -> None:
            lock.announce(address)
            api.start()

        try:
            return HubProcess(parts, announce, read, ServiceManager(os.environ)).run()
        finally:
            api.end()
    finally:
        lock.release()


def serve_worker(
    settings: Config,
    data_dir: DataDir,
    read: Read,
    report: Reporter,
    *,
    is_fail_fast: bool = False,
    is_draining: bool = False,
) -> int:
    """Run one of several workers, whose supervisor has made the checks of a start; returns as `serve`. `settings`, `data_dir`: the worker's.

    `report`: hears that it is ready, from then on each second that it runs, and whether it drains. `is_draining`: its former process did.

    Raises: as `serve`.
    """
    raise_file_limit()
    require_descriptors(settings, file_limit())
    data_dir.make_own()
    lock = data_dir.lock("iothub serve")

    try:
        reactor = _install_reactor(settings)
        from iothub.hub.hub_process import HubProcess, make_parts

        def announce(address: str) -> None:
            lock.announce(address)
            report.ready()
            _beat(reactor, report)

        phase = Phase(is_draining=is_draining, on_drain=report.drains)
        parts = make_parts(settings, data_dir, reactor, phase, is_fail_fast=is_fail_fast)
        reactor.addReader(NewsReader(parts.monitoring.store_alarms.store_process_changed, reactor.removeReader))
        return HubProcess(parts, announce, read, ServiceManager(), is_supervised=True).run()
    finally:
        lock.release()


def _beat(reactor: Any, report: Reporter) -> None:
    report.beat()
    reactor.callLater(BEAT_S, _beat, reactor, report)


def _supervise(settings: Config, data_dir: DataDir, lock: Lock, api_command: Sequence[str]) -> int:
    log.name_process("supervisor")
    reactor = _install_reactor(settings)
    from iothub.hub.workers.supervisor import Supervisor  # what it stands on takes the reactor that is there

    facts = {"pid": os.getpid(), "version": version("iothub"), "twin": select_backend(), "started": time.time()}
    facts["workers"] = settings.node.workers
    facts["nodes"] = list(node_numbers(settings, data_dir))

    def announce(worker: Mapping[str, object]) -> None:
        addresses = {name: address for name, address in worker.items() if name not in facts}
        data_dir.write_hub({**facts, **addresses})
        lock.announce(", ".join(str(address) for name, address in addresses.items() if name != "http"))
        api.start()

    data_dir.write_hub({**facts, "starting": "its workers are starting"})
    command = [sys.executable, *sys.orig_argv[1:]]
    api = ApiProcess(api_command, data_dir, reactor)
    try:
        return Supervisor(
            settings,
            data_dir,
            reactor,
            command,
            announce,
            ServiceManager(os.environ),
            has_store=needs_store_process(settings, data_dir),
        ).run()
    finally:
        api.end()
        data_dir.remove_hub()


def _install_reactor(settings: Config) -> Any:
    configure_log(settings.log)
    twisted_log.bridge()
    reactor = HubReactor()
    installReactor(reactor)  # type: ignore[no-untyped-call]  # plug-ins that import the reactor get this one
    return reactor
