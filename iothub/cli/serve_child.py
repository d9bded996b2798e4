"""What `iothub serve` with several workers starts: the store process, or one worker.

Its supervisor has made the checks of a start, and says to a person what keeps this process from starting.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from iothub.base import log
from iothub.base.errors import IotHubError
from iothub.cli.app import App
from iothub.config.check import Checked
from iothub.config.datadir import DataDir
from iothub.config.workers import of_worker
from iothub.hub.phase import BEGIN_AGAIN, BEGIN_AGAIN_DRAINING
from iothub.hub.workers import supervised
from iothub.hub.workers.supervised import Reporter


def serve(app: App, flags: tuple[str, ...], worker: int, *, is_fail_fast: bool, is_draining: bool) -> int:
    """Be the store process (`worker` 0) or a worker, until the supervisor stops it; return as `iothub.hub.serve.serve`."""
    supervised.require_supervisor()
    report = supervised.Reporter()
    try:
        supervised.begin()
        if not worker:
            return _serve_stores(app, flags, report)
        data_dir = DataDir.of_worker(app.data_dir.path, worker)
        read = partial(_read_for, app, flags, data_dir)
        settings = read().loaded.config
        log.name_process(settings.node.name)
        from iothub.hub.serve import serve_worker

        code = serve_worker(settings, data_dir, read, report, is_fail_fast=is_fail_fast, is_draining=is_draining)
        return supervised.BEGINS_AGAIN if code in (BEGIN_AGAIN, BEGIN_AGAIN_DRAINING) else code
    except IotHubError as error:
        if not report.failed(error):
            raise  # it has started, and its supervisor does not listen any more
        return error.exit_code


def _serve_stores(app: App, flags: tuple[str, ...], report: Reporter) -> int:
    log.name_process("store")
    settings = app.load_checked(flags).loaded.config
    from iothub.hub.workers import store_process

    return store_process.run(settings, app.data_dir, report)


def _read_for(app: App, flags: tuple[str, ...], data_dir: DataDir) -> Checked:
    """Read the configuration as a worker has it."""
    checked = app.load_checked(flags)
    loaded = replace(checked.loaded, config=of_worker(checked.loaded.config, data_dir))
    return replace(checked, loaded=loaded)
