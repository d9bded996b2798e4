"""`iothub config`: check and show the configuration.

Knows no key: `iothub.config` does.
"""

from __future__ import annotations

import click

from iothub.cli import output
from iothub.cli.app import App, noun, verb
from iothub.config_check import check_files
from iothub.config_reference import render_reference

command = noun("config", "Check and show the configuration: flags, environment, file and defaults together.")
SET = click.option("--set", "flags", multiple=True, metavar="KEY=VALUE", help="A setting, as `iothub serve` takes it.")


@verb(command, "check")
@SET
def check(app: App, flags: tuple[str, ...]) -> None:
    """Check the configuration without starting: the same messages and exit code (2) as `iothub serve`.

    Examples:
      iothub --data-dir ./hub config check
      iothub --config new.toml config check --set http.port=8080
    """
    loaded = app.load(flags)
    warnings = check_files(loaded.config)
    for warning in warnings:
        output.say(f"iothub: warning: {warning}")
    app.done("the configuration is valid", {"name": "config", "is_valid": True, "warnings": warnings})


@verb(command, "show")
@SET
@click.option("--origin", "is_origin_shown", is_flag=True, help="Say where each value comes from.")
@click.option("--changed", "is_changed_only", is_flag=True, help="Only what differs from the defaults.")
@click.option("--reference", "is_reference", is_flag=True, help="Print the reference page of all settings (Markdown).")
def show(app: App, flags: tuple[str, ...], is_origin_shown: bool, is_changed_only: bool, is_reference: bool) -> None:
    """Show the effective configuration: every key with its value, in the form of the file.

    Examples:
      iothub --data-dir ./hub config show --origin
      iothub config show --reference
    """
    if is_reference:
        click.echo(render_reference(), nl=False)
        return
    rows = [
        {"name": name, "value": value, "origin": origin}
        for name, value, origin in app.load(flags).values()
        if not is_changed_only or origin != "default"
    ]
    if app.form != "table" or is_origin_shown:
        app.rows(rows, "name", "value", "origin")
        return
    click.echo("config_version = 1")
    for row in rows:
        click.echo(f"{row['name']} = {row['value']}")
