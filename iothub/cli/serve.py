"""`iothub serve`: check the configuration, then run the hub until a signal stops it.

Knows no part of the hub: `iothub.hub.serve` builds and runs it.
"""

from __future__ import annotations

import click

from iothub.base import log
from iothub.cli import output
from iothub.cli.app import App, Command
from iothub.config.check import check_start
from iothub.config.sections import Config
from iothub.net.backend import require_fresh_build, select_backend


@click.command("serve", cls=Command)
@click.option("--set", "flags", multiple=True, metavar="KEY=VALUE", help="A setting, such as listeners.tcp.port=1884.")
@click.option("--check", "is_check", is_flag=True, help="Check the configuration and exit, like `iothub config check`.")
@click.option(
    "--fail-fast", "is_fail_fast", is_flag=True, help="Exit with code 7 instead of waiting for servers at the start."
)
@click.pass_context
def command(context: click.Context, flags: tuple[str, ...], is_check: bool, is_fail_fast: bool) -> None:
    """Run the hub in the foreground; SIGTERM or Ctrl-C stops it cleanly (exit code 0).

    A start that fails prints one line. Exit code 2: wrong configuration; 3: `iothub init` is missing; 4: another hub uses the data
    directory, or a newer program wrote it; 7: a port is in use, or a directory cannot be written.

    Examples:
      iothub --data-dir ./hub serve
      iothub --data-dir ./hub serve --set listeners.tcp.bind=0.0.0.0 --set http.port=8080
      IOTHUB_LISTENERS__WS__PORT=8083 iothub --data-dir ./hub serve
    """
    app: App = context.obj
    config = app.load(flags).config
    for warning in check_start(config):
        output.say(f"iothub: warning: {warning}")
    _check_twin()
    if is_check:
        app.done("the configuration is valid")
        return
    app.require_initialised(config)
    _configure_log(config)
    from iothub.hub.serve import serve

    context.exit(serve(config, app.data_dir, is_fail_fast=is_fail_fast))


def _configure_log(config: Config) -> None:
    rate = config.log.rate_limit
    limit = (rate.count, rate.seconds) if rate is not None else None
    log.configure(level=config.log.level, form=config.log.format, rate=limit)
    from iothub.hub import twisted_log

    twisted_log.bridge()


def _check_twin() -> None:
    """Refuse the plain twin if the operator requires the compiled one, and compiled modules older than their sources."""
    if select_backend() == "compiled":
        require_fresh_build()
