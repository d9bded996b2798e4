"""`iothub serve`: check the configuration, then run the hub until a signal stops it.

Knows no part of the hub: `iothub.hub.serve` builds and runs it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from functools import partial
from importlib.util import find_spec

import click

from iothub.base.errors import ConfigError, IotHubError
from iothub.cli import output
from iothub.cli.app import App, Command
from iothub.config import value_types
from iothub.config.sections import Admin
from iothub.hub.phase import BEGIN_AGAIN, BEGIN_AGAIN_DRAINING
from iothub.hub.workers.supervised import DRAINING
from iothub.net.backend import is_pure_python, require_fresh_build, require_whole_build, select_backend

_OF_EXTRA = ("fastapi", "uvicorn")


def _workers(_context: click.Context, parameter: click.Parameter, text: str | None) -> str | None:
    """Raises BadParameter: it is neither a number of workers nor `auto`."""
    if text is not None:
        try:
            value_types.workers.read(value_types.workers.from_text(text))
        except ValueError as error:
            raise click.BadParameter(f"{text!r}: {error}", param=parameter) from None
    return text


@click.command("serve", cls=Command)
@click.option("--set", "flags", multiple=True, metavar="KEY=VALUE", help="A setting, such as listeners.tcp.port=1884.")
@click.option(
    "--workers",
    metavar="N|auto",
    callback=_workers,
    help="Processes that serve clients, each on a CPU of its own; auto: as many as there are CPUs. Same as --set node.workers=N.",
)
@click.option(
    "--check", "is_check", is_flag=True, help="Check everything that can keep the hub from starting, and exit."
)
@click.option(
    "--fail-fast", "is_fail_fast", is_flag=True, help="Exit with code 7 instead of waiting for servers at the start."
)
@click.option("--as-worker", "worker", type=int, default=0, hidden=True, help="Be this worker of a supervisor.")
@click.option("--store-process", "is_store", is_flag=True, hidden=True, help="Be the store process of a supervisor.")
@click.option(
    DRAINING, "is_draining", is_flag=True, hidden=True, help="Let no client in: the process before this one drained."
)
@click.pass_context
def command(
    context: click.Context,
    flags: tuple[str, ...],
    workers: str | None,
    is_check: bool,
    is_fail_fast: bool,
    worker: int,
    is_store: bool,
    is_draining: bool,
) -> None:
    """Run the hub in the foreground; SIGTERM or Ctrl-C stops it cleanly (exit code 0).

    If the extra `admin` is installed, it starts the REST API as a process beside the hub (settings of the section `admin`).

    With several workers this process starts them, starts anew what ends unexpectedly, and stops them all.

    A start that fails prints a line for each thing that is in its way. Exit code 2: wrong configuration; 3: `iothub init` is missing; 4: another
    hub uses the data directory, or a newer program wrote it; 7: a port is in use, or a directory cannot be written.

    With --check that is all: it looks at the configuration, the files that it names, the data directory and the ports, as every start does.
    Beside a running hub use `iothub config check`.

    Examples:
      iothub --data-dir ./hub serve
      iothub --data-dir ./hub serve --set listeners.tcp.bind=0.0.0.0 --set http.port=8080
      iothub --data-dir ./hub serve --workers auto
      IOTHUB_LISTENERS__WS__PORT=8083 iothub --data-dir ./hub serve
    """
    app: App = context.obj
    if workers is not None:
        flags = (*flags, f"node.workers={workers}")
    if worker or is_store:
        from iothub.cli import serve_child

        code = serve_child.serve(app, flags, worker, is_fail_fast=is_fail_fast, is_draining=is_draining)
    elif is_check and app.form != "table":
        code = _report_check(app, flags)
    else:
        code = _serve(app, flags, is_check=is_check, is_fail_fast=is_fail_fast, is_draining=is_draining)
    context.exit(_replaced(code))


def _replaced(code: int) -> int:
    """Replace this process if the hub is to begin again; else return the exit code."""
    if code in (BEGIN_AGAIN, BEGIN_AGAIN_DRAINING):
        words = _again(sys.orig_argv, is_draining=code == BEGIN_AGAIN_DRAINING)
        os.execv(sys.executable, words)  # noqa: S606 - the program that runs already
    return code


def _again(command_line: Sequence[str], *, is_draining: bool) -> list[str]:
    """Return the command line of the process that replaces this one."""
    words = [word for word in command_line[1:] if word != DRAINING]
    return [sys.executable, *words, *([DRAINING] if is_draining else [])]


def _serve(app: App, flags: tuple[str, ...], *, is_check: bool, is_fail_fast: bool, is_draining: bool = False) -> int:
    checked = app.load_checked(flags)
    config = checked.loaded.config
    for warning in checked.warnings:
        output.say(f"iothub: warning: {warning}")
    _check_twin()
    app.require_initialised(config)
    from iothub.hub.serve import serve

    read = partial(app.load_checked, flags)
    code = serve(
        config,
        app.data_dir,
        read,
        api_command=_api_command(app, config.admin, flags),
        is_fail_fast=is_fail_fast,
        is_only_checked=is_check,
        is_draining=is_draining,
    )
    if is_check and app.form == "table":
        app.done("nothing keeps the hub from starting")
    return code


def _report_check(app: App, flags: tuple[str, ...]) -> int:
    """Print what keeps the hub from starting as one record."""
    errors: list[str] = []
    code = 0
    try:
        _serve(app, flags, is_check=True, is_fail_fast=False)
    except IotHubError as error:
        errors, code = [str(error), *error.details], error.exit_code
    app.record({"name": "hub", "is_startable": not errors, "exit_code": code, "errors": errors})
    return code


def _api_command(app: App, admin: Admin, flags: tuple[str, ...]) -> list[str]:
    """Return the command line of the REST API's process; empty: none is wanted, or the extra is missing. Raises ConfigError: it is required."""
    if admin.enabled == "off" or admin.port is None:
        return []
    missing = [name for name in _OF_EXTRA if find_spec(name) is None]
    if missing and admin.enabled == "on":
        raise ConfigError(
            f'admin.enabled = "on" needs the extra `admin` ({missing[0]} is missing): install iothub[admin]'
        )
    if missing:
        return []
    config = [] if app.config_file is None else ["--config", str(app.config_file)]
    words = ["--data-dir", str(app.data_dir.path), *config, "admin", "serve", "--of-hub", str(os.getpid())]
    return [sys.executable, "-P", "-m", "iothub.cli", *words, *(word for flag in flags for word in ("--set", flag))]


def _check_twin() -> None:
    """Refuse the plain twin if the operator requires the compiled one, compiled modules older than their sources, and half a build."""
    if select_backend() == "compiled":
        require_fresh_build()
    if not is_pure_python():
        require_whole_build()
