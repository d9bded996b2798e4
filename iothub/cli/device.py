"""`iothub device`: devices of a tenant on the accounts store, whether or not the hub runs.

Knows no hash: `iothub_tenants.accounts.devices` makes credentials. A secret comes from standard input, a file or a prompt, never from a flag.
"""

from __future__ import annotations

import functools
import shlex
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

import click

from iothub.base.errors import ConfigError
from iothub.cli import account_verbs, accounts, deletion, output
from iothub.cli.app import App, destroying_verb, noun, verb
from iothub.cli.bulk import Import
from iothub.cli.files import NamedPath
from iothub.cli.numbers import WholeNumber
from iothub.cli.paging import Page, paged
from iothub.config.sections import TlsListener, kind_of
from iothub_tenants.accounts.plain import plain

command = noun("device", "Devices of a tenant. MQTT user name: TENANT/DEVICE.")

_COLUMNS = ("name", "credential", "is_enabled", "groups", "created")

C = TypeVar("C", bound=Callable[..., object])


def _secret_options(function: C) -> C:
    for option in (
        click.option("--prompt", "is_prompted", is_flag=True, help="Ask for the password on the terminal."),
        click.option("--secret-file", type=NamedPath(), help="Read the password from a file."),
        click.option("--password-stdin", "is_stdin", is_flag=True, help="Read the password from standard input."),
    ):
        function = option(function)
    return function


def _foreign_options(function: Callable[..., None]) -> Callable[..., None]:
    """Say which program wrote a file, and how it made the hashes in it; the function gets what reads it, `read`."""

    @functools.wraps(function)
    def wrapped(*given: object, form: str, salt: str, pbkdf2: str | None, **named: object) -> None:
        function(*given, read=_reader(form, salt, pbkdf2), **named)

    made: Callable[..., None] = wrapped
    for option in (
        click.option(
            "--pbkdf2",
            metavar="MAC_FUN:ITERATIONS",
            help="With --from emqx: the hash algorithm of its authenticator is pbkdf2, with mac_fun sha256 or sha512.",
        ),
        click.option(
            "--salt",
            type=click.Choice(("prefix", "suffix")),
            default="prefix",
            show_default=True,
            help="With --from emqx: salt_position of its authenticator.",
        ),
        click.option(
            "--from",
            "form",
            type=click.Choice(("csv", "mosquitto", "emqx")),
            default="csv",
            show_default=True,
            help="What wrote FILE: a password file of Mosquitto, or users of EMQX's built-in database as CSV.",
        ),
    ):
        made = option(made)
    return made


@verb(command, "list")
@click.argument("tenant")
@paged("name")
def list_all(app: App, tenant: str, page: Page) -> None:
    """List the devices of a tenant by name.

    Examples:
      iothub --data-dir ./hub device list acme -o json
      iothub --data-dir ./hub device list acme --limit 100 --after dev1
    """
    found = accounts.devices.page(app.store(), tenant, page.after, page.to_read)
    page.show(app, [plain(device) for device in found], *_COLUMNS)


account_verbs.add_show(
    command,
    lambda store, tenant, name: accounts.devices.show(store, tenant, name),
    """Show one device, without its secret: only a hash of it is stored.

    Example:
      iothub --data-dir ./hub device show acme dev1
    """,
)


@verb(command, "create")
@click.argument("tenant")
@click.argument("name")
@click.option("--group", "groups", multiple=True, help="Add it to this group (repeatable).")
@click.option("--jwt", "with_token", is_flag=True, help="It logs in with a token of one of the tenant's token issuers.")
@_secret_options
def create(
    app: App,
    tenant: str,
    name: str,
    groups: tuple[str, ...],
    with_token: bool,
    is_stdin: bool,
    secret_file: Path | None,
    is_prompted: bool,
) -> None:
    """Create a device. Without a password option, a secret is generated and printed once.

    With --jwt the device has no secret: it logs in with a token only (see `iothub token-issuer`).

    Examples:
      iothub --data-dir ./hub device create acme dev1
      echo -n secret | iothub --data-dir ./hub device create acme dev1 --password-stdin
      iothub --data-dir ./hub device create acme dev1 --secret-file dev1.secret
      iothub --data-dir ./hub device create acme dev1 --jwt
    """
    if with_token and (is_stdin or secret_file is not None or is_prompted):
        raise ConfigError("a device has one kind of credential: give --jwt, or a password, not both")
    password = app.read_secret(is_stdin=is_stdin, file=secret_file, is_prompted=is_prompted)
    made = accounts.devices.create(app.store(), tenant, name, password=password, groups=groups, with_token=with_token)
    _show_secret(app, f"created device {tenant}/{name}", made)
    if app.form == "table" and not app.is_remote:
        _show_first_publish(app, tenant, name, "TOKEN" if with_token else _secret_to_show(made))


@verb(command, "import")
@click.argument("tenant")
@click.argument("file", type=NamedPath(allow_dash=True))
@click.option(
    "--secrets-to",
    type=NamedPath(allow_dash=True),
    help="Generate missing secrets and write them to this new file; -: standard output.",
)
@_foreign_options
@click.option("--from-line", type=WholeNumber(1), help="Leave out the lines before this one, but for the header.")
@click.option("--dry-run", "is_dry_run", is_flag=True, help="Check all rows; import nothing.")
def import_file(
    app: App,
    tenant: str,
    file: Path,
    secrets_to: Path | None,
    read: accounts.imports.Read | None,
    from_line: int | None,
    is_dry_run: bool,
) -> None:
    """Create many devices from a CSV file with a header: all or none. FILE: a path, or - for standard input.

    Columns, in any order: name; password; groups, of the tenant, separated by blanks; limits of the device, as `quota set` takes them,
    separated by blanks (in quotation marks if one has a comma). Only name and password must be there.

    Bad lines are reported with their numbers (exit code 4).

    With a context all rows are checked first, and written in parts then, each of them all or none. When that stops in between, the message says
    what is written, and the line for --from-line, with which the same command goes on.

    With --from, passwords stay the hashes that Mosquitto ($6$, $7$, $argon2id$) or EMQX (sha256, sha512, pbkdf2) made, and the devices keep
    their passwords. The username of each is TENANT/NAME from now on. Hashes by md5, sha (SHA-1) and bcrypt are refused.

    With --secrets-to the column password may be absent, and a password may be empty: those devices get generated secrets, written as
    name,username,secret to a new file that only you can read. With - they go to standard output; in JSON they are the list `secrets` of
    the object.

    Example file:
      name,password,groups,limits
      dev1,first-secret,sensors hall-1,device_publish_messages=5/1s
      dev2,second-secret,,

    Examples:
      iothub --data-dir ./hub device import acme devices.csv --dry-run
      iothub --data-dir ./hub device import acme devices.csv
      iothub --data-dir ./hub device import acme fleet.csv --secrets-to fleet-secrets.csv
      iothub --data-dir ./hub device import acme fleet.csv --secrets-to - -o json
      iothub --data-dir ./hub device import acme fleet.csv --secrets-to more-secrets.csv --from-line 2
      iothub --data-dir ./hub device import acme mosquitto.passwd --from mosquitto --dry-run
      iothub --data-dir ./hub device import acme emqx.csv --from emqx --salt suffix --dry-run
      iothub --data-dir ./hub device import acme emqx.csv --from emqx --pbkdf2 sha256:4096 --dry-run
    """
    if read is not None and secrets_to is not None:
        raise ConfigError("--secrets-to is for CSV files: with --from, every device has a password already")
    if read is not None and from_line is not None:
        raise ConfigError("--from-line is for CSV files: with --from, all lines are imported or none")
    Import(app, tenant, file, secrets_to, read=read, from_line=from_line, is_dry_run=is_dry_run).run()


@verb(command, "rotate-secret")
@click.argument("tenant")
@click.argument("name")
def rotate_secret(app: App, tenant: str, name: str) -> None:
    """Replace the device's credential with a new generated secret, printed once. Its open connections are closed.

    Example:
      iothub --data-dir ./hub device rotate-secret acme dev1
    """
    _show_secret(app, f"new secret for {tenant}/{name}", accounts.devices.rotate_secret(app.store(), tenant, name))


@verb(command, "set-password")
@click.argument("tenant")
@click.argument("name")
@_secret_options
def set_password(app: App, tenant: str, name: str, is_stdin: bool, secret_file: Path | None, is_prompted: bool) -> None:
    """Replace the device's credential with a given password. Its open connections are closed.

    Examples:
      iothub --data-dir ./hub device set-password acme dev1
      echo -n secret | iothub --data-dir ./hub device set-password acme dev1 --password-stdin
    """
    is_asked = is_prompted or not (is_stdin or secret_file is not None)
    password = app.read_secret(is_stdin=is_stdin, file=secret_file, is_prompted=is_asked)
    if password is None:
        raise ConfigError("no password given: use --password-stdin or --secret-file")
    app.done(
        f"set the password of {tenant}/{name}",
        plain(accounts.devices.set_password(app.store(), tenant, name, password)),
    )


@verb(command, "set-certificate")
@click.argument("tenant")
@click.argument("name")
@click.argument("subject")
def set_certificate(app: App, tenant: str, name: str, subject: str) -> None:
    """Let the device log in with a TLS client certificate of this subject only.

    SUBJECT is a common name (dev1) or the whole subject in RFC 4514 form (CN=dev1,O=Acme), as
    `openssl x509 -noout -subject -nameopt RFC2253 -in FILE` prints it. Behind a proxy only common names work.

    The listener must ask for client certificates: see the setting listeners.tls.client_ca_file.

    Examples:
      iothub --data-dir ./hub device set-certificate acme dev1 dev1.acme.example
      iothub --data-dir ./hub device set-certificate acme dev1 CN=dev1,O=Acme
    """
    device = accounts.devices.set_certificate(app.store(), tenant, name, subject)
    app.done(f"{tenant}/{name} now logs in with a certificate", plain(device))


account_verbs.add_change(
    command,
    "set-jwt tenant name",
    lambda *given: accounts.devices.set_jwt(*given),
    "{tenant}/{name} now logs in with a token",
    """Let the device log in with a token (JWT) of one of the tenant's token issuers only.

    Example:
      iothub --data-dir ./hub device set-jwt acme dev1
    """,
)
account_verbs.add_change(
    command,
    "enable tenant name",
    lambda *given: accounts.devices.enable(*given),
    "enabled device {tenant}/{name}",
    """Let the device connect again.

    Example:
      iothub --data-dir ./hub device enable acme dev1
    """,
)
account_verbs.add_change(
    command,
    "disable tenant name",
    lambda *given: accounts.devices.disable(*given),
    "disabled device {tenant}/{name}",
    """Close the device's connections and refuse new ones. Its account and sessions stay.

    Example:
      iothub --data-dir ./hub device disable acme dev1
    """,
)


@destroying_verb(command, "delete")
@click.argument("tenant")
@click.argument("name")
def delete(app: App, tenant: str, name: str, is_dry_run: bool) -> None:
    """Delete a device, the rules, limits and bans that name it, and its sessions with their queued messages.

    A running hub closes its connections and ends its sessions within a second; without a hub, the next start does. Will Messages are not
    published. A new device of the same name starts with nothing.

    Example:
      iothub --data-dir ./hub device delete acme dev1 --yes
    """
    record = plain(accounts.devices.show(app.store(), tenant, name))
    if app.may_delete(f"device {tenant}/{name}", record, is_dry_run=is_dry_run):
        deletion.delete_device(app, tenant, name)
        app.deleted(f"device {tenant}/{name}", record)


def _secret_to_show(made: accounts.devices.NewSecret) -> str:
    """Return the secret where it was just shown to a person, else a word in its place: it must not get into a script's log."""
    return made.secret if made.secret is not None and output.is_on_terminal() else "SECRET"


def _show_first_publish(app: App, tenant: str, name: str, password: str) -> None:
    """Print a command that publishes as this device."""
    where = _listener_options(app)
    if where:
        who = ["-i", name, "-u", f"{tenant}/{name}", "-P", password]
        output.say(f"try it: {shlex.join(['mosquitto_pub', *where, *who, '-t', 'hello', '-m', 'world'])}")


def _listener_options(app: App) -> list[str]:
    """Return where mosquitto_pub reaches the hub of this directory: as it listens, else as its settings have it; nothing if it cannot."""
    listening, listeners = app.data_dir.read_hub() or {}, app.loaded.config.listeners
    for name, listener in listeners.by_name().items():
        if kind_of(name) not in {"tcp", "tls"}:
            continue
        host, _, port = str(listening.get(name) or f"{listener.bind}:{listener.port or 0}").rpartition(":")
        if port != "0":
            is_anywhere = host.strip("[]") in {"0.0.0.0", "::"}  # noqa: S104  not to bind there
            ca_file = ["--cafile", str(listener.cert_file)] if isinstance(listener, TlsListener) else []
            return ["-h", "127.0.0.1" if is_anywhere else host.strip("[]"), "-p", port, *ca_file]
    return []


def _reader(form: str, salt: str, pbkdf2: str | None) -> accounts.imports.Read | None:
    """Return what reads the file. Raises ConfigError: `pbkdf2` is no algorithm, or not for such a file."""
    if pbkdf2 is not None and form != "emqx":
        raise ConfigError("--pbkdf2 is for users of EMQX: expected --from emqx")
    if form == "csv":
        return None
    foreign = accounts.foreign_accounts
    if form == "mosquitto":
        return foreign.read_mosquitto
    stored_form = foreign.emqx_salted(salt) if pbkdf2 is None else foreign.emqx_pbkdf2(pbkdf2)
    return partial(foreign.read_emqx, stored_form=stored_form)


def _show_secret(app: App, message: str, made: accounts.devices.NewSecret) -> None:
    record = plain(made.device)
    if made.secret is not None:
        record["secret"] = made.secret
    app.done(message, record)
    if made.secret is not None and app.form == "table":
        output.say("its secret, shown this once:")
        output.write_text(made.secret)
