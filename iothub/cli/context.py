"""`iothub context`: the REST APIs that `--context NAME` speaks to.

Knows no API: a context is tried when it is used.
"""

from __future__ import annotations

import re
from pathlib import Path

import click

from iothub.base.errors import ConfigError, ConflictError
from iothub.cli import contexts
from iothub.cli.app import App, noun, verb
from iothub.cli.contexts import Context
from iothub.cli.files import NamedPath

command = noun("context", "Contexts: REST APIs of other machines, for `iothub --context NAME`.")

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_COLUMNS = ("name", "url", "key_from", "is_current")


@verb(command, "list")
def list_all(app: App) -> None:
    """List the contexts. The keys are not shown.

    Example:
      iothub context list
    """
    known = contexts.load()
    app.rows([_row(known.by_name[name], known.current) for name in sorted(known.by_name)], *_COLUMNS)


@verb(command, "add")
@click.argument("name")
@click.argument("url")
@click.option("--key-stdin", "is_stdin", is_flag=True, help="Read the key from standard input, and store it.")
@click.option("--key-file", type=NamedPath(), help="Read the key from this file at each command.")
@click.option("--key-env", metavar="VARIABLE", help="Read the key from the environment at each command.")
@click.option("--ca-file", type=NamedPath(), help="Trust this certificate authority (PEM) for https.")
@click.option("--use", "is_used", is_flag=True, help="Make it the context of commands that name none.")
def add(
    app: App,
    name: str,
    url: str,
    is_stdin: bool,
    key_file: Path | None,
    key_env: str | None,
    ca_file: Path | None,
    is_used: bool,
) -> None:
    """Add a context. URL: where the API is, such as https://iothub.example.com.

    Without an option for the key, it is asked for and stored in a file that only you can read.

    Examples:
      iothub context add prod https://iothub.example.com --key-file prod.key
      echo "$KEY" | iothub context add test http://127.0.0.1:8081 --key-stdin --use
    """
    if not _NAME.fullmatch(name):
        raise ConfigError(f"context name {name!r} is not valid: expected 1 to 64 letters, digits, '.', '_' or '-'")
    if (key_file is not None) + (key_env is not None) + is_stdin > 1:
        raise ConfigError("expected one of --key-stdin, --key-file and --key-env, got several")
    known, address = contexts.load(), contexts.checked_url(url)
    if name in known.by_name:
        raise ConflictError(f"there is a context {name} already: remove it first with `iothub context remove {name}`")
    is_stored = key_file is None and key_env is None
    made = Context(
        name,
        address,
        key=_asked_key(app, is_stdin=is_stdin) if is_stored else "",
        key_file="" if key_file is None else str(key_file.absolute()),
        key_env=key_env or "",
        ca_file="" if ca_file is None else str(ca_file.absolute()),
    )
    if not made.key_env:
        made.read_key()
    if made.is_key_readable_by_others():
        app.say(f"iothub: warning: others can read the key: run `chmod 600 {made.key_file}`")
    known.by_name[name] = made
    known.current = name if is_used else known.current
    contexts.save(known)
    if contexts.is_readable_on_the_way(made):
        app.say("iothub: warning: the key goes over the network in plain text: use https")
    app.done(f"added context {name}\nnext: iothub --context {name} tenant list", _row(made, known.current))


@verb(command, "use")
@click.argument("name", required=False)
@click.option("--none", "is_none", is_flag=True, help="Use no context: commands work on this machine again.")
def use(app: App, name: str | None, is_none: bool) -> None:
    """Use a context for all commands that have neither --context nor --data-dir nor --config.

    Examples:
      iothub context use prod
      iothub context use --none
    """
    if (name is None) is not is_none:
        raise ConfigError("expected one context: `iothub context use NAME`, or --none for this machine")
    known = contexts.load()
    known.current = "" if name is None else known.find(name).name
    contexts.save(known)
    app.done(f"using context {name}" if name else "using no context", {"name": name})


@verb(command, "remove")
@click.argument("name")
def remove(app: App, name: str) -> None:
    """Remove a context and the key that is stored for it; the key itself stays valid.

    Example:
      iothub context remove test
    """
    known = contexts.load()
    row = _row(known.find(name), known.current)
    del known.by_name[name]
    known.current = "" if known.current == name else known.current
    contexts.save(known)
    app.done(f"removed context {name}", row)


def _asked_key(app: App, *, is_stdin: bool) -> str:
    key = app.read_secret(is_stdin=is_stdin, file=None, is_prompted=not is_stdin and app.is_interactive)
    if key is None:
        raise ConfigError("no key, and nobody can be asked for it: use --key-stdin, --key-file or --key-env")
    return key


def _row(context: Context, current: str) -> dict[str, object]:
    return {
        "name": context.name,
        "url": context.url,
        "key_from": context.key_from,
        "ca_file": context.ca_file or None,
        "is_current": context.name == current,
    }
