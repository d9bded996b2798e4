"""`iothub config`: check and show the configuration.

Knows no key: `iothub.config.loader` does.
"""

from __future__ import annotations

import tomllib

import click

from iothub.cli import output
from iothub.cli.app import App, noun, verb
from iothub.config.check import check_start
from iothub.config.reference_page import render_reference

command = noun("config", "Check and show the configuration: flags, environment, file and defaults combined.")
SET = click.option("--set", "flags", multiple=True, metavar="KEY=VALUE", help="A setting, as for `iothub serve`.")


@verb(command, "check")
@SET
def check(app: App, flags: tuple[str, ...]) -> None:
    """Check the configuration without starting the hub: the messages and exit code (2) of `iothub serve`.

    Examples:
      iothub --data-dir ./hub config check
      iothub --config new.toml config check --set http.port=8080
    """
    loaded = app.load(flags)
    warnings = check_start(loaded.config)
    for warning in warnings:
        output.say(f"iothub: warning: {warning}")
    app.done("the configuration is valid", {"name": "config", "is_valid": True, "warnings": warnings})


@verb(command, "show")
@SET
@click.option("--origin", "is_origin_shown", is_flag=True, help="Show where each value comes from.")
@click.option("--changed", "is_changed_only", is_flag=True, help="Only what differs from the defaults.")
@click.option("--reference", "is_reference", is_flag=True, help="Print the reference page of all settings (Markdown).")
def show(app: App, flags: tuple[str, ...], is_origin_shown: bool, is_changed_only: bool, is_reference: bool) -> None:
    """Show the effective configuration: every key with its value, as TOML.

    Examples:
      iothub --data-dir ./hub config show --origin
      iothub config show --reference
    """
    if is_reference:
        output.write_text(render_reference(), end="")
        return
    shown = [entry for entry in app.load(flags).values() if not is_changed_only or entry[2] != "default"]
    if app.form != "table" or is_origin_shown:
        is_text = app.form == "table"
        app.rows(
            [
                {"name": name, "value": toml if is_text else _value(toml), "origin": origin}
                for name, toml, origin in shown
            ],
            "name",
            "value",
            "origin",
        )
        return
    output.write_text("config_version = 1")
    for name, toml, _ in shown:
        output.write_text(f"{name} = {toml}")


def _value(toml: str) -> object:
    """Return what a piece of TOML stands for: a number, a text, true or false, a list."""
    return tomllib.loads(f"value = {toml}")["value"]
