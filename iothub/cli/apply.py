"""`iothub apply`: bring tenants to the state that a file describes.

Knows no account: `iothub.admin.apply` finds the steps, and the functions of the commands do them.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import click

from iothub.base.documents import read_document
from iothub.base.errors import ConfigError
from iothub.cli import accounts, output
from iothub.cli.app import App, Command
from iothub.cli.files import NamedPath, read_text
from iothub.cli.progress import Progress

if TYPE_CHECKING:
    from iothub.admin.apply_steps import Step

_SIGNS = {"create": "+", "update": "~", "delete": "-"}


@click.command("apply", cls=Command)
@click.option("-f", "--file", type=NamedPath(allow_dash=True), required=True, help="YAML or JSON; -: standard input.")
@click.option("--dry-run", "is_dry_run", is_flag=True, help="Show what would change; change nothing.")
@click.option("--prune", "prunes", is_flag=True, help="Delete what a list of the file does not name any more.")
@click.option(
    "--yes", "is_agreed", is_flag=True, help="Do not ask before --prune deletes. Required without a terminal."
)
@click.pass_obj
def command(app: App, file: Path, is_dry_run: bool, prunes: bool, is_agreed: bool) -> None:
    """Create and change tenants, plans, groups, devices, rules and limits as a file describes them.

    The file has what `tenant export` writes, or a list `tenants` of such objects, and a list `plans`. Each part may be missing: what a
    file does not name stays as it is. A rule may be a text (`deny * publish config/#`), so may a limit (`connections=100`), and a device
    its name. Running the same file again changes nothing. A small one: `tenants: [{tenant: {name: acme}, devices: [dev1]}]`.

    A new device gets a generated secret, which is printed once, unless the file has the hash of one; a file never has a password. With
    --prune, what a part that the file has does not name is deleted, after a question, with the rules and limits of devices and groups that
    go; a tenant or a plan never is.

    Examples:
      iothub --data-dir ./hub apply -f tenants.yaml --dry-run
      iothub --data-dir ./hub apply -f tenants.yaml
      iothub --data-dir ./hub apply -f tenants.yaml --prune --yes
    """
    _apply(app, file, is_dry_run=is_dry_run, prunes=prunes, is_agreed=is_agreed)


def _apply(app: App, file: Path, *, is_dry_run: bool, prunes: bool, is_agreed: bool) -> None:
    from iothub.admin import apply as applying

    document = _read(file)
    store = app.store()
    found = accounts.admin_apply.steps(store, app.loaded.config.tenancy, document, prunes=prunes)
    if skipped := applying.not_applied(document):
        app.say(f"iothub: warning: not applied, use the commands of each: {', '.join(skipped)}")
    counts = Counter(step.action for step in found)
    words = ", ".join(f"{counts[action]} to {action}" for action in _SIGNS if counts[action]) or "nothing to change"
    if app.form == "table":
        for step in found:
            app.say(_line(step))
    deletes = counts["delete"] > 0
    if deletes and not is_dry_run:
        app.agree("--yes", is_agreed=is_agreed, confirmed=None)
        app.confirm(f"Delete {output.counted(counts['delete'], 'object')}, and do the rest?")
    secrets: list[dict[str, str]] = []
    record = {"steps": [applying.row(step) for step in found], "secrets": secrets, "is_applied": not is_dry_run}
    if is_dry_run or not found:
        app.done(words, record)
        return
    try:
        with Progress("changes made") as progress:
            asked = applying.Asked(document, prunes)
            accounts.admin_apply.run(store, found, asked, secrets.append, progress)
        app.done(f"applied: {words}", record)
        if app.form == "table":
            _show(secrets)
    except BaseException:  # what was made before it failed is shown here, or nowhere
        _show(secrets)
        raise


def _show(secrets: list[dict[str, str]]) -> None:
    if secrets:
        output.say("secrets of new devices, shown this once:")
        for each in secrets:
            output.write_text(f"{each['username']} {each['secret']}")


def _line(step: Step) -> str:
    where = f"{step.tenant}: " if step.tenant and step.what != "tenant" else ""
    return f"{_SIGNS[step.action]} {where}{step.what} {step.name}{f' ({step.change})' if step.change else ''}"


def _read(file: Path) -> object:
    octets = read_text(file)
    try:
        return read_document(octets)
    except ConfigError as error:
        raise ConfigError(f"{file}: {error}") from None
