"""`iothub token-issuer`: whose tokens (JWT) the devices of a tenant may log in with, on the accounts store, whether or not the hub runs.

Knows no cryptography: `iothub.admin.issuers` reads keys. A shared secret comes from standard input or a file, never from a flag.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from iothub.base.errors import ConfigError
from iothub.cli import account_verbs, accounts
from iothub.cli.app import App, destroying_verb, noun, verb
from iothub.cli.durations import seconds
from iothub.cli.files import NamedPath, cannot_be_read, read_json
from iothub_services.auth.port import TokenAlgorithm
from iothub_tenants.accounts.plain import plain

if TYPE_CHECKING:
    from iothub.admin.issuers import Given

command = noun("token-issuer", "Token issuers: whose tokens (JWT) the devices of a tenant may log in with.")
_PEM_LIMIT_BYTES = 16_384
_SHARED = TokenAlgorithm.HS256.value  # the one whose key is a secret

C = TypeVar("C", bound=Callable[..., object])


@dataclass(frozen=True, slots=True)
class _Options:
    """The options that both `add` and `update` have."""

    public_key_file: Path | None
    jwks_file: Path | None
    is_stdin: bool
    secret_file: Path | None
    algorithm: str | None
    issuer: str | None
    audience: str | None
    leeway: float | None


def _issuer_options(function: C) -> C:
    path = NamedPath()
    for option in (
        click.option(
            "--leeway",
            metavar="DURATION",
            callback=seconds,
            help='Maximum difference between its clock and that of the hub, such as "30s".',
        ),
        click.option("--audience", help="Required value in `aud`. Without it, tokens that have an `aud` are refused."),
        click.option("--issuer", help="Required value of `iss`. Without it, `iss` is not checked."),
        click.option(
            "--algorithm",
            type=click.Choice([each.value for each in TokenAlgorithm]),
            help="Signature algorithm. Default: the one of the key; HS256 for a secret.",
        ),
        click.option("--secret-file", type=path, help="Read the shared secret of HS256 from a file."),
        click.option("--secret-stdin", "is_stdin", is_flag=True, help="Read the shared secret from standard input."),
        click.option("--jwks-file", type=path, help="File with its public keys as a JSON Web Key Set."),
        click.option("--public-key-file", type=path, help="File with its public key in PEM."),
    ):
        function = option(function)
    return function


account_verbs.add_list(
    command,
    lambda store, tenant: accounts.token_issuers.list_all(store, tenant),
    ("name", "algorithm", "issuer", "audience", "leeway_s", "keys"),
    """List the token issuers of a tenant.

    Example:
      iothub --data-dir ./hub token-issuer list acme -o json
    """,
)
account_verbs.add_show(
    command,
    lambda store, tenant, name: accounts.token_issuers.show(store, tenant, name),
    """Show one token issuer with the fingerprints of its public keys; a shared secret is stored encrypted and cannot be shown.

    Example:
      iothub --data-dir ./hub token-issuer show acme fleet
    """,
)


@verb(command, "add")
@click.argument("tenant")
@click.argument("name")
@_issuer_options
def add(app: App, tenant: str, name: str, **options: object) -> None:
    """Trust a token issuer: a device created with `device create --jwt` logs in with one of its tokens as MQTT password.

    A token needs `exp`, and `sub` must be DEVICE or TENANT/DEVICE; `nbf`, `iat`, `iss` and `aud` are checked if present.
    The algorithm is set here and never taken from a token. Keys: ES256 (EC P-256), RS256 (RSA from 2048 bits),
    EdDSA (Ed25519), HS256 (a shared secret of at least 32 bytes; who has it can make tokens, so prefer the others).

    Examples:
      iothub --data-dir ./hub token-issuer add acme fleet --public-key-file fleet.pem --audience iothub
      iothub --data-dir ./hub token-issuer add acme login --jwks-file jwks.json --issuer https://login.example --leeway 30s
      iothub --data-dir ./hub token-issuer add acme shared --secret-file shared.secret
    """
    given = _read(app, _options(options))
    if not given.has_keys:
        raise ConfigError("no key given: use --public-key-file, --jwks-file, --secret-stdin or --secret-file")
    made = accounts.admin_issuers.add(app.store(), tenant, name, given)
    app.done(f"tenant {tenant} trusts tokens of {name}\nnext: iothub device create {tenant} DEVICE --jwt", plain(made))


@verb(command, "update")
@click.argument("tenant")
@click.argument("name")
@_issuer_options
def update(app: App, tenant: str, name: str, **options: object) -> None:
    """Change the given settings of a token issuer; the others stay. New keys replace all old ones and must be for the same algorithm.

    Connections whose key is kept stay open; a change of --issuer, --audience or --leeway closes all.
    An empty --issuer or --audience removes the check.

    Examples:
      iothub --data-dir ./hub token-issuer update acme login --jwks-file jwks.json
      iothub --data-dir ./hub token-issuer update acme fleet --leeway 30s
    """
    given = _read(app, _options(options))
    if not given.has_any:
        raise ConfigError("nothing to change: give at least one option, see `iothub token-issuer update --help`")
    made = accounts.admin_issuers.change(app.store(), tenant, name, given)
    app.done(f"updated token issuer {name}", plain(made))


@destroying_verb(command, "remove", dry_run="Show what would be removed; remove nothing.")
@click.argument("tenant")
@click.argument("name")
def remove(app: App, tenant: str, name: str, is_dry_run: bool) -> None:
    """Stop trusting a token issuer; connections that logged in with its tokens are closed within a second.

    Example:
      iothub --data-dir ./hub token-issuer remove acme fleet --yes
    """
    record = plain(accounts.token_issuers.show(app.store(), tenant, name))
    if is_dry_run:
        app.done(f"would remove token issuer {name}", {**record, "is_deleted": False})
        return
    app.confirm(f"Remove token issuer {name} and close the connections of its tokens?")
    accounts.token_issuers.remove(app.store(), tenant, name)
    app.done(f"removed token issuer {name}", {**record, "is_deleted": True})


def _options(options: dict[str, object]) -> _Options:
    return _Options(**options)  # type: ignore[arg-type]  # click has typed them


def _read(app: App, given: _Options) -> Given:
    """Read what the options name. Raises ConfigError."""
    from iothub.admin.issuers import Given

    sources = (given.public_key_file, given.jwks_file, given.secret_file)
    if sum(source is not None for source in sources) + given.is_stdin > 1:
        raise ConfigError(
            "expected one of --public-key-file, --jwks-file, --secret-stdin and --secret-file, got several"
        )
    secret = app.read_secret(is_stdin=given.is_stdin, file=given.secret_file, is_prompted=False)
    if given.algorithm is not None and (secret is not None) != (given.algorithm == _SHARED):
        raise ConfigError("--secret-stdin and --secret-file are for HS256 only, and HS256 needs one of them")
    found = Given(
        public_key=None if given.public_key_file is None else _read_text(given.public_key_file),
        jwks=None if given.jwks_file is None else read_json(given.jwks_file),
        secret=secret,
        algorithm=given.algorithm,
        issuer=given.issuer,
        audience=given.audience,
        leeway_s=given.leeway,
    )
    if given.algorithm is not None and not found.has_keys:
        raise ConfigError(
            "--algorithm needs a key: use --public-key-file, --jwks-file, --secret-stdin or --secret-file"
        )
    return found


def _read_text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            octets = file.read(_PEM_LIMIT_BYTES + 1)
    except OSError as error:
        raise cannot_be_read(path, error) from None
    if len(octets) > _PEM_LIMIT_BYTES or not octets.isascii():
        raise ConfigError(f"{path}: not a public key in PEM: expected -----BEGIN PUBLIC KEY-----")
    return octets.decode("ascii")
