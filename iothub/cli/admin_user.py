"""`iothub admin user`: the people who log in to the REST API and the dashboard, on the accounts store, whether or not anything runs.

Knows no hash. A password comes from standard input, a file or a prompt, or is generated; never from a flag.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import click

from iothub.base.errors import ConfigError
from iothub.cli import account_verbs, accounts, output
from iothub.cli.app import App, destroying_verb, noun, verb
from iothub.cli.files import NamedPath
from iothub.cli.paging import Page, paged
from iothub_tenants.accounts.plain import plain

command = noun("user", "Users: people who log in to the dashboard and the REST API with name and password.")

ROLES = ("platform-admin", "operator", "viewer", "tenant-admin", "tenant-viewer")
COLUMNS = ("name", "role", "tenant", "is_local", "is_enabled", "created", "last_used")

C = TypeVar("C", bound=Callable[..., object])


def _password_options(function: C) -> C:
    for option in (
        click.option("--generate", "is_generated", is_flag=True, help="Generate a password and print it, once."),
        click.option("--secret-file", type=NamedPath(), help="Read the password from a file."),
        click.option("--password-stdin", "is_stdin", is_flag=True, help="Read the password from standard input."),
    ):
        function = option(function)
    return function


@verb(command, "list")
@paged("name")
def list_all(app: App, page: Page) -> None:
    """List all users. Those whose names begin with oidc: came from the OpenID provider; they have no password here.

    Example:
      iothub --data-dir ./hub admin user list
    """
    page.show(app, page.by_name([plain(found) for found in accounts.users.list_all(app.store())]), *COLUMNS)


@verb(command, "show")
@click.argument("name")
def show(app: App, name: str) -> None:
    """Show one user: role, tenant, last login.

    Example:
      iothub --data-dir ./hub admin user show alice
    """
    app.record(plain(accounts.users.show(app.store(), name)))


@verb(command, "create")
@click.argument("name")
@click.option("--role", type=click.Choice(ROLES), required=True, help="What the user may do, as for keys.")
@click.option("--tenant", help="The tenant that the user is for: required for the roles of a tenant.")
@_password_options
def create(
    app: App, name: str, role: str, tenant: str | None, is_stdin: bool, secret_file: Path | None, is_generated: bool
) -> None:
    """Create a user. Without a password option, the password is asked for.

    A password has at least 12 characters, of any kind, and is no obvious one.

    Examples:
      iothub --data-dir ./hub admin user create alice --role platform-admin --generate
      iothub --data-dir ./hub admin user create bob --role tenant-admin --tenant acme --secret-file bob.secret
    """
    password = _password(app, is_stdin=is_stdin, file=secret_file, is_generated=is_generated)
    _show_password(app, f"created user {name}", accounts.users.create(app.store(), name, role, tenant, password))


@verb(command, "set-password")
@click.argument("name")
@_password_options
def set_password(app: App, name: str, is_stdin: bool, secret_file: Path | None, is_generated: bool) -> None:
    """Give a user another password; all logins of the user end. Without a password option, it is asked for.

    Example:
      iothub --data-dir ./hub admin user set-password alice --generate
    """
    password = _password(app, is_stdin=is_stdin, file=secret_file, is_generated=is_generated)
    _show_password(app, f"set the password of {name}", accounts.users.set_password(app.store(), name, password))


account_verbs.add_change(
    command,
    "disable name",
    lambda *given: accounts.users.disable(*given),
    "disabled user {name}",
    """End all logins of a user, and refuse new ones.

    Example:
      iothub --data-dir ./hub admin user disable alice
    """,
)
account_verbs.add_change(
    command,
    "enable name",
    lambda *given: accounts.users.enable(*given),
    "enabled user {name}",
    """Let a disabled user log in again.

    Example:
      iothub --data-dir ./hub admin user enable alice
    """,
)


@destroying_verb(command, "delete")
@click.argument("name")
def delete(app: App, name: str, is_dry_run: bool) -> None:
    """Delete a user; all logins of the user end.

    Example:
      iothub --data-dir ./hub admin user delete alice --yes
    """
    record = plain(accounts.users.show(app.store(), name))
    if app.may_delete(f"user {name}", record, is_dry_run=is_dry_run):
        accounts.users.remove(app.store(), name)
        app.deleted(f"user {name}", record)


def _password(app: App, *, is_stdin: bool, file: Path | None, is_generated: bool) -> str | None:
    """Return the password; None: generate one. Raises ConfigError."""
    if is_generated and (is_stdin or file is not None):
        raise ConfigError("expected one of --generate, --password-stdin and --secret-file, got several")
    is_prompted = not (is_generated or is_stdin or file is not None)
    if is_prompted and not app.is_interactive:
        raise ConfigError(
            "no password, and nobody can be asked for it: use --generate, --password-stdin or --secret-file"
        )
    return app.read_secret(is_stdin=is_stdin, file=file, is_prompted=is_prompted)


def _show_password(app: App, message: str, made: accounts.users.NewPassword) -> None:
    generated = {} if made.password is None else {"password": made.password}
    app.done(message, {**plain(made.user), **generated})
    if app.form == "table" and made.password is not None:
        output.say("the password, shown this once:")
        output.write_text(made.password)
