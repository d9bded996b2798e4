"""`iothub doctor`: check everything that a hub with this configuration needs, and say what to do.

Knows no part: `iothub.doctor` checks them. What the hub says is reached as other commands reach it.
"""

from __future__ import annotations

from collections.abc import Iterator

import click

from iothub.base.errors import ConfigError
from iothub.cli import accounts, output, status
from iothub.cli.app import App, Command
from iothub.config.sections import Config
from iothub.doctor import running
from iothub.doctor.all import checks
from iothub.doctor.findings import Check, Finding, State, run_checks

LIMIT_S = 20.0
_NAME_WIDTH = 32


@click.command("doctor", cls=Command)
@click.option("--json", "is_json", is_flag=True, help="The same as -o json.")
@click.pass_context
def command(context: click.Context, is_json: bool) -> None:
    """Check the data directory, the accounts, every configured back end, the ports, the certificates and the clock; and a running hub.

    Shows the state of the running hub with each of its alarms. It reads no single records: `events verify` and `state verify` do.

    Prints one line per check: ok, warn (it works, but needs attention) or FAIL (the hub does not start, or refuses work), with the response
    time and what to do. All checks run in parallel, for at most 20 s, and change nothing. Works beside a running hub, and
    with a configuration file only, such as `iothub init --profile cluster` writes.
    Exit code 0 when no check failed, 1 when one did, 3 when there is no hub and no configuration yet.

    Examples:
      iothub --data-dir ./hub doctor
      iothub --data-dir ./hub --config .services/iothub.toml doctor -o json
    """
    app: App = context.obj
    if is_json:
        app.form = "json"
    if not app.is_remote and not app.data_dir.has_config:
        app.data_dir.require_initialised()
    found: list[Finding] = []
    for finding in accounts.of_doctor.findings_of(app.there, app):
        found.append(finding)
        if app.form == "table":
            output.write_text(line(finding))
    if app.form != "table":
        app.rows([row(each) for each in found], "state", "name", "text", "ms", "advice")
    failed = sum(each.state is State.FAIL for each in found)
    warned = sum(each.state is State.WARN for each in found)
    app.say(f"{len(found)} checks: {failed} failed, {output.counted(warned, 'warning')}")
    context.exit(1 if failed else 0)


def findings_of(_there: object, app: App) -> Iterator[Finding]:
    """Check everything of this machine. Raises ConfigError: the settings are wrong."""
    return findings(app, _settings(app))


def findings(app: App, settings: Config) -> Iterator[Finding]:
    """Check everything, and yield what is found as it comes."""
    return run_checks([*checks(app.data_dir, settings), *_of_hub(app)], LIMIT_S)


def _settings(app: App) -> Config:
    """Return the settings. Raises ConfigError: they are wrong; every mistake is named, those of the files as well."""
    try:
        return app.loaded.config
    except ConfigError:
        app.load_checked()
        raise


def _of_hub(app: App) -> list[Check]:
    """Return the check of the running hub, if there is one."""
    holder = app.data_dir.holder() if app.data_dir.is_initialised else None
    return [] if holder is None else [Check(running.NAME, lambda: running.findings(status.facts_of(app, holder)))]


def line(finding: Finding) -> str:
    """Write a finding for a person."""
    took = "" if finding.seconds is None else f" ({finding.seconds * 1000:.1f} ms)"
    advice = f" - {finding.advice}" if finding.advice else ""
    return f"{finding.state.value:5} {finding.name:{_NAME_WIDTH}} {finding.text}{took}{advice}"


def row(finding: Finding) -> dict[str, object]:
    return {
        "name": finding.name,
        "state": finding.state.value,
        "text": finding.text,
        "ms": None if finding.seconds is None else round(finding.seconds * 1000, 1),
        "advice": finding.advice or None,
    }
