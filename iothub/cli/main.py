"""The `iothub` command: global options, the list of nouns, and what an error looks like to a person.

Knows no noun's inside: each has a file of its own in this folder, imported only when it is used.
"""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from iothub.base.errors import ConfigError, InterruptedWorkError, IotHubError
from iothub.base.text import printable
from iothub.cli import output
from iothub.cli.app import App, Suggesting, default_data_dir, keep_examples, output_option
from iothub.cli.files import NamedPath
from iothub.cli.hints import Hints

if TYPE_CHECKING:
    from iothub.cli.contexts import Context

# In the order in which a new operator needs them. Each module has an attribute `command`.
NOUNS = {
    "init": ("init", "Create a data directory: configuration, keys, accounts, plans."),
    "serve": ("serve", "Run the hub in the foreground."),
    "status": ("status", "Show whether the hub runs, where, and its health."),
    "doctor": ("doctor", "Check everything that the hub needs, and say what to do."),
    "alarm": ("alarm", "Alarms of all hubs: what is wrong now, and what to do."),
    "bundle": ("bundle", "A support archive: status, settings, findings and more, without secrets."),
    "config": ("config", "Check, show and reload the configuration."),
    "tenant": (
        "tenant",
        "Tenants: list, show, create, update, suspend, resume, protect, delete, export, import.",
    ),
    "apply": ("apply", "Bring tenants, plans, devices, rules and limits to the state that a file describes."),
    "device": ("device", "Devices of a tenant: list, show, create, import, secrets, enable, disable, delete."),
    "group": ("group", "Groups of devices, for access rules."),
    "acl": ("acl", "Access rules: who may publish and subscribe to what."),
    "quota": ("quota", "Limits of a tenant or a device; they override those of the plan."),
    "plan": ("plan", "Plans: named sets of limits for tenants."),
    "token-issuer": ("token_issuer", "Token issuers: whose tokens (JWT) a tenant's devices may log in with."),
    "ban": ("ban", "Keep a device, a client id or an address out of a tenant."),
    "explain": ("explain", "Why a CONNECT, PUBLISH or SUBSCRIBE would be allowed or refused, step by step."),
    "trace": ("trace", "Record what clients and messages do, at all hubs."),
    "rejected": ("rejected", "The last refused CONNECTs of a tenant, and why."),
    "client": ("client", "Clients that are connected now: list, show, kick, top."),
    "session": ("session", "Persistent sessions: list, show, discard."),
    "queue": ("queue", "Virtual queues of persistent sessions: list, show, purge."),
    "retain": ("retain", "Retained messages: list, show, delete."),
    "events": ("events", "The session-event log: tail, lag, verify."),
    "state": ("state", "The session states: verify."),
    "stream": ("stream", "Streams to and from Kafka: list, show, create, delete."),
    "webhook": (
        "webhook",
        "Webhooks: events as signed HTTP requests; list, show, create, update, rotate, test, delete.",
    ),
    "usage": ("usage", "Usage of a tenant, by hour, day or in total."),
    "job": ("job", "Jobs, such as compaction: list, run, cancel, status, history, show, logs, plan, forget, schedule."),
    "db": ("db", "The accounts database: status, upgrade, copy, adopt."),
    "hbase": ("hbase", "The hub's tables in HBase: create-tables, status, sweep."),
    "admin": ("admin", "The REST API and who may use it: serve, user, key."),
    "audit": ("audit", "Who has changed what."),
    "backup": ("backup", "Copy the data directory as of one moment, beside a running hub or without one."),
    "restore": ("restore", "Put a backup into a data directory."),
    "cluster": ("cluster", "The hubs of an installation: status, nodes, drain, resume, evict, init-ca, issue."),
    "cert": ("cert", "Certificates: create a self-signed one for tests."),
    "context": ("context", "REST APIs of other machines, for --context: add, use, list, remove."),
    "completion": ("completion", "The lines with which bash, zsh or fish completes this command."),
    "version": ("version", "Show the version of the program and its libraries."),
}
_HINT = "this is a defect: run the same command with --debug and report the output"


class Nouns(Suggesting):
    """Imports a noun's module when the noun is used: `iothub version` does not wait for a database library."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        options["help"] = keep_examples(options.get("help") or "")
        super().__init__(*arguments, **options)

    def list_commands(self, _context: click.Context) -> list[str]:
        return list(NOUNS)

    def get_command(self, _context: click.Context, name: str) -> click.Command | None:
        if name not in NOUNS:
            return None
        module = importlib.import_module(f"iothub.cli.{NOUNS[name][0]}")
        command: click.Command = module.command
        return command

    def format_commands(self, _context: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in NOUNS.items()])


def _show_version(context: click.Context, _option: click.Parameter, is_asked: bool) -> None:
    if is_asked and not context.resilient_parsing:
        from iothub.cli.version import program_version

        click.echo(f"iothub {program_version()}")
        context.exit()


@click.group(cls=Nouns, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(
    "--data-dir",
    type=NamedPath(),
    envvar="IOTHUB_DATA_DIR",
    help="Directory with all files of this hub (environment: IOTHUB_DATA_DIR). Default: ~/.local/share/iothub.",
)
@click.option(
    "--config",
    "config_file",
    type=NamedPath(),
    help="Configuration file. Default: iothub.toml in the data directory.",
)
@click.option(
    "--context",
    "context_name",
    metavar="NAME",
    envvar="IOTHUB_CONTEXT",
    help="Work through the REST API of another machine; `iothub context add` names one (environment: IOTHUB_CONTEXT).",
)
@click.option("--no-input", is_flag=True, help="Never ask; a command that needs an answer fails with exit code 2.")
@click.option("--debug", is_flag=True, help="Show log lines, and a traceback with an error.")
@click.option(
    "--version", is_flag=True, expose_value=False, is_eager=True, callback=_show_version, help="Print the version."
)
@click.pass_context
def command(
    context: click.Context,
    data_dir: Path | None,
    config_file: Path | None,
    context_name: str | None,
    no_input: bool,
    debug: bool,
) -> None:
    """A multi-tenant MQTT hub: every tenant has its own broker.

    First steps:
      iothub --data-dir ./hub init
      iothub --data-dir ./hub tenant create acme
      iothub --data-dir ./hub device create acme dev1
      iothub --data-dir ./hub serve

    Exit codes: 0 done, 1 failed, 2 usage or configuration, 3 not found, 4 conflict, 5 denied, 6 limit, 7 unavailable.
    """
    hints: Hints = context.obj
    _give_options(hints, data_dir, config_file, context_name)
    app = App(
        data_dir or default_data_dir(),
        config_file,
        hints,
        is_input_allowed=not no_input,
        context=_chosen_context(context, context_name, is_local=data_dir is not None or config_file is not None),
    )
    app.form = context.meta.get("iothub.form", "table")
    context.obj = app
    context.call_on_close(app.close)


def _give_options(hints: Hints, data_dir: Path | None, config_file: Path | None, context_name: str | None) -> None:
    if not context_name:
        hints.give(data_dir, config_file)
        return
    from iothub.cli.remote_commands import begins_remotely

    hints.give(data_dir, config_file, context_name, begins_remotely)


def _chosen_context(context: click.Context, name: str | None, *, is_local: bool) -> Context | None:
    """Return the context of this run: the one that is named, else the one in use unless the options name a directory here.

    Raises ConfigError: both are named. NotFoundError.
    """
    if is_local and name:
        raise ConfigError("expected --context, or --data-dir and --config: a context is another machine; got both")
    if is_local or context.invoked_subcommand == "context":
        return None
    from iothub.cli import contexts

    if not name and not contexts.path().exists():
        return None
    known = contexts.load()
    chosen = name or known.current
    return known.find(chosen) if chosen else None


def _remember_form(context: click.Context, _option: click.Parameter, form: str | None) -> None:
    if form is not None:
        context.meta["iothub.form"] = form


_global_output = output_option()
_global_output.callback = _remember_form
command.params.append(_global_output)


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code. No mistake of a user and no defect ends in a traceback."""
    hints = Hints()
    try:
        code = command.main(args=list(arguments), prog_name="iothub", standalone_mode=False, obj=hints)
        return code if isinstance(code, int) else 0
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        output.say("iothub: interrupted; nothing more was changed")
        return InterruptedWorkError.exit_code
    except output.OutputError as error:
        _silence_stdout()
        return _explain(error, arguments, f"iothub: {error}", error.exit_code)
    except IotHubError as error:
        if isinstance(error.__cause__, output.OutputError):
            _silence_stdout()
        details = map(hints.complete, error.details)
        return _explain(error, arguments, f"iothub: {hints.complete(str(error))}", error.exit_code, details)
    except BrokenPipeError:
        _silence_stdout()
        return 1
    except MemoryError:
        output.say("iothub: out of memory")
        return 1
    except Exception as error:  # the edge towards a person
        return _explain(error, arguments, f"iothub: unexpected {type(error).__name__}: {error}; {_HINT}", 1)


def _explain(error: Exception, arguments: Sequence[str], line: str, code: int, details: Iterable[str] = ()) -> int:
    if "--debug" in arguments:
        traceback.print_exception(error)
    for text in (line, *details):
        output.say(printable(text))
    return code


def _silence_stdout() -> None:
    """The reader of a pipe is gone; what is still buffered must not raise at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
