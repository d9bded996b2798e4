"""`iothub config`: check, show and reload the configuration.

Knows no key: `iothub.config.loader` does.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Sequence
from typing import cast

import click

from iothub.base.errors import ConfigError, ErrorList
from iothub.cli import accounts, output
from iothub.cli.app import SET, App, noun, verb
from iothub.config.reference_page import render_reference
from iothub.config.sections import Config
from iothub.records.admin_commands import Verb

command = noun("config", "Check, show and reload the configuration: flags, environment, file and defaults combined.")


@verb(command, "check")
@SET
def check(app: App, flags: tuple[str, ...]) -> None:
    """Check the configuration and the files that it names, also beside a running hub. Every mistake is reported; exit code 2.

    Examples:
      iothub --data-dir ./hub config check
      iothub --config new.toml config check --set http.port=8080
    """
    checked = app.load_checked(flags)
    _check_link_certificates(app, checked.loaded.config)
    file = checked.loaded.file
    if file is None:
        app.say(
            f"iothub: warning: there is no configuration file {app.data_dir.config_file}: every setting that is not given has its default"
        )
    for warning in checked.warnings:
        output.say(f"iothub: warning: {warning}")
    record = {"name": "config", "is_valid": True, "file": file and str(file), "warnings": checked.warnings}
    app.done("the configuration is valid", record)


def _check_link_certificates(app: App, config: Config) -> None:
    """Those that are there: they may be issued after the configuration is written. Raises ConfigError."""
    from iothub.hub.from_settings import links_by_process
    from iothub.peers import certificates

    errors = ErrorList()
    for files, node in links_by_process(config, app.data_dir).values():
        if files.certificate.exists():
            with errors.gathering():
                certificates.load(files, node)
    errors.raise_any()


@verb(command, "reload")
def reload(app: App) -> None:
    """Make the running hub of the data directory, each of its workers, read its configuration again, as SIGHUP does, and show what has changed.

    The hub reads its file, its own environment and the --set of its own start. A setting with `now` is applied, one with `restart` keeps its
    old value until the hub is restarted (`iothub config show --reference` has both). If there is a mistake, nothing is changed: every mistake is
    reported, exit code 2. Exit code 7: no hub runs here.

    Examples:
      iothub --data-dir ./hub config reload
    """
    answer, *_ = app.hub.ask_workers(Verb.CONFIG_RELOAD)  # all read the same
    for warning in cast("list[str]", answer.result["warnings"]):
        output.say(f"iothub: warning: {warning}")
    if answer.rows or app.form != "table":
        app.rows(answer.rows, "name", "value", "reload")
    app.say(_outcome([str(row["reload"]) for row in answer.rows], cast("list[str]", answer.result["certificates"])))


def _outcome(reloads: list[str], certificates: list[str]) -> str:
    """Return in a sentence what a reload did."""
    applied, waiting = reloads.count("now"), reloads.count("restart")
    parts = [f"applied {output.counted(applied, 'changed setting')}" if applied else "no changed setting to apply"]
    if certificates:
        parts.append(f"read the certificates of {', '.join(certificates)} again")
    if waiting:
        parts.append(
            f"{output.counted(waiting, 'changed setting')} {'need' if waiting > 1 else 'needs'} a restart of the hub"
        )
    return f"reloaded: {'; '.join(parts)}"


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
    if app.is_remote and flags:
        raise ConfigError("--set does not work with a context: the settings are those of the machine of the API")
    entries = accounts.of_config.entries(app.there, app, flags)
    shown = [entry for entry in entries if not is_changed_only or entry[2] != "default"]
    if app.form != "table" or is_origin_shown:
        app.rows(rows(shown, is_text=app.form == "table"), "name", "value", "origin")
        return
    output.write_text("config_version = 1")
    for name, toml, _ in shown:
        output.write_text(f"{name} = {toml}")


def entries(_there: object, app: App, flags: Sequence[str]) -> list[tuple[str, str, str]]:
    """Return every setting of this machine: its name, its value as TOML, its origin."""
    return list(app.load(flags).values())


def rows(entries: Iterable[tuple[str, str, str]], *, is_text: bool) -> list[dict[str, object]]:
    """Return settings with their values, as TOML or as what it stands for, and where each one comes from."""
    return [
        {"name": name, "value": toml if is_text else _value(toml), "origin": origin} for name, toml, origin in entries
    ]


def _value(toml: str) -> object:
    """Return what a piece of TOML stands for: a number, a text, true or false, a list."""
    return tomllib.loads(f"value = {toml}")["value"]
