"""What every command needs: the global options, the configuration and the accounts, opened when first used.

Knows no noun and prints nothing but through `output`.
"""

from __future__ import annotations

import functools
import getpass
import inspect
import math
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, cast

import click

from iothub.base.errors import BackendError, ConfigError, UnavailableError
from iothub.cli import output
from iothub.cli.durations import seconds
from iothub.cli.files import cannot_be_read
from iothub.cli.hints import Hints
from iothub.cli.output import Row
from iothub.config.check import Checked, load_checked
from iothub.config.datadir import DataDir
from iothub.config.loader import Loaded, load
from iothub.config.sections import Config

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from iothub.cli.contexts import Context
    from iothub.cli.local_hub import Answer, LocalHub, OnProgress
    from iothub.cli.remote_api import RemoteApi
    from iothub.records.admin_commands import Json, Verb
    from iothub_tenants.accounts.store import AccountStore

COMMAND_TIMEOUT_S = 10.0  # how long a running hub may take to answer or to report progress
_UNWRAPPED = ("Example", "First steps", "Profiles")
_SECRET_LIMIT_BYTES = 4096
_LEFT_OUT = "what these hubs have in memory is not included, and is perhaps not changed: run the same command with their data directories, too"
WITHOUT_CONTEXT = {"context", "version", "completion", "cert"}  # nouns that work on neither hub nor accounts
_COMPLETION_WAIT_S = 1.0  # for accounts on a server
_COMPLETED = {
    "tenant",
    "device",
    "group",
    "plan",
    "parent",
    "limits",
    "quotas",
    "names",
    "flags",
    "name",
}  # see `completed_values`

TIMEOUT = click.option(
    "--timeout",
    "timeout_s",
    metavar="DURATION",
    callback=seconds,
    help='Maximum time to wait for the running hub, such as "5m". Default: as long as it reports progress.',
)
SET = click.option("--set", "flags", multiple=True, metavar="KEY=VALUE", help="A setting, as for `iothub serve`.")
_AGREED = click.option(
    "--yes", "is_agreed", is_flag=True, help="Do not ask for confirmation. Required without a terminal."
)
_CONFIRM = click.option("--confirm", metavar="NAME", help="Repeat the name. Required without a terminal.")


class App:
    """One run of the command line."""

    def __init__(
        self,
        data_dir: Path,
        config_file: Path | None,
        hints: Hints,
        *,
        is_input_allowed: bool,
        context: Context | None = None,
    ) -> None:
        """`context`: the REST API of another machine, which does what its commands can."""
        self.data_dir = DataDir(data_dir)
        self._context = context
        self.hints = hints
        self.form = "table"
        self._config_file = config_file
        self._read_file: Path | None = None
        self._is_input_allowed = is_input_allowed
        self._loaded: Loaded | None = None
        self._store: AccountStore | None = None
        self._is_agreed = False
        self._confirmed: str | None = None
        self._unanswered: list[str] = []
        self.patience_s = math.inf  # with accounts on a server; the settings may allow less

    @property
    def is_interactive(self) -> bool:
        """May a question be asked?"""
        return self._is_input_allowed and sys.stdin.isatty()

    def forbid_input(self) -> None:
        """Ask nothing from now on."""
        self._is_input_allowed = False

    # --- what commands work on

    @property
    def is_remote(self) -> bool:
        """Whether commands are done by the REST API of another machine."""
        return self._context is not None

    @property
    def api(self) -> RemoteApi | None:
        """The API that does the commands; None: they are done here."""
        if self._context is None:
            return None
        from iothub.cli.remote_api import RemoteApi

        return RemoteApi(self._context)

    @property
    def there(self) -> AccountStore | None:
        """The store of a context; None: without one, functions about the machine work on this one."""
        return self.store() if self.is_remote else None

    @property
    def may_hub_run(self) -> bool:
        """Whether a hub runs here, or may run where the API is."""
        return self.is_remote or self.data_dir.holder() is not None

    def require_counterpart(self, words: str) -> None:
        """Raises ConfigError: the REST API of a context cannot do this command."""
        if self._context is None or words.partition(" ")[0] in WITHOUT_CONTEXT:
            return
        from iothub.cli.remote_commands import works_remotely

        if not works_remotely(words):
            raise ConfigError(
                f"`iothub {words}` does not work with a context (here: {self._context.name}); "
                f"run it on the hub's machine, with --data-dir; `iothub context use --none` ends the use of a context"
            )

    @property
    def config_file(self) -> Path | None:
        """The file that was given with --config."""
        return self._config_file

    @property
    def _file(self) -> Path | None:
        """The file that is read; None: there is none."""
        if self.is_remote:
            return None
        if self._config_file is None and self.data_dir.has_config:
            return self.data_dir.config_file
        return self._config_file

    def load(self, flags: Sequence[str] = ()) -> Loaded:
        """Read the configuration, with the `--set` flags of this command; whatever the command does from here on goes by it."""
        here = {} if self.is_remote else os.environ  # what is set here does not hold there
        self._loaded = load(file=self._file, environment=here, flags=flags)
        return self._loaded

    def load_checked(self, flags: Sequence[str] = ()) -> Checked:
        """Read the configuration, and check it with the files that it names: every mistake is reported.

        When a running hub reads again, a file that was read before must still be there: one that is lost is a mistake, and never all defaults.
        """
        checked = load_checked(file=self._read_file or self._file, environment=os.environ, flags=flags)
        self._read_file = checked.loaded.file
        return checked

    @property
    def loaded(self) -> Loaded:
        return self.load() if self._loaded is None else self._loaded

    def accounts_url(self) -> str:
        """Return where the accounts are: the text of `sql.url_file`, else the file in the data directory."""
        from iothub_tenants.accounts.database import accounts_url

        return accounts_url(self.loaded.config.sql.url_file, self.data_dir.accounts)

    def require_initialised(self, config: Config | None = None) -> None:
        """Require the data directory and the accounts that `init` makes; a missing configuration file is only a warning.

        Raises:
            NotFoundError: `init` must be run first.
            UnavailableError: The path is no directory, cannot be read, or the accounts file is missing.
        """
        self.data_dir.require_initialised()
        if (config or self.loaded.config).sql.url_file is None:
            self.data_dir.require_accounts()
        if self._config_file is None and not self.data_dir.has_config:
            self.say(
                f"iothub: warning: {self.data_dir.config_file} is missing, so every setting has its default: "
                "restore the file, or run `iothub init` for a new one"
            )

    def store(self) -> AccountStore:
        """Open the accounts of an initialised data directory, or those behind an API; closed at the end of the command."""
        if self._store is None and (api := self.api) is not None:
            from iothub.cli.remote import RemoteStore

            self._store = cast("AccountStore", RemoteStore(api))
        if self._store is None:
            from iothub_tenants.accounts.bounds import bounds_of
            from iothub_tenants.accounts.store import AccountStore

            self.require_initialised()
            url = self.accounts_url()
            pepper = self.data_dir.pepper(self.loaded.config.auth.pepper_file)
            try:
                bounds = bounds_of(self.loaded.config.sql).within(self.patience_s)
                self._store = AccountStore(url, pepper=pepper, bounds=bounds, actor=_actor())
            except BackendError:
                self.data_dir.require_writable_system()
                raise
        return self._store

    def store_to_complete(self) -> AccountStore:
        """Open the accounts for the shell's completion: without a word, and not for long. The caller closes them."""
        from iothub_tenants.accounts.bounds import bounds_of
        from iothub_tenants.accounts.store import AccountStore

        bounds = bounds_of(self.loaded.config.sql).within(_COMPLETION_WAIT_S)
        return AccountStore(self.accounts_url(), bounds=bounds)

    @property
    def hub(self) -> LocalHub:
        """The hub that runs on the data directory, reached over its local socket. Raises NotFoundError: `init` must be run first."""
        if (api := self.api) is not None:
            from iothub.cli.remote_hub import RemoteHub

            return cast("LocalHub", RemoteHub(api))
        from iothub.cli.local_hub import LocalHub

        self.data_dir.require_initialised()
        return LocalHub(self.data_dir)

    def ask_hub(self, tenant: str, verb: Verb, argument: Row, silence_s: float) -> Answer:
        """Ask every hub of these accounts, through the one that runs here. Raises UnavailableError, or the hub's own refusal."""
        answer = self.hub.ask(verb, tenant, argument, silence_s)
        self._note_unanswered(answer.result)
        return answer

    def change_hub(
        self,
        tenant: str,
        verb: Verb,
        argument: Row,
        timeout_s: float | None = None,
        on_progress: OnProgress | None = None,
    ) -> Json:
        """Have the hubs of these accounts do something; wait `timeout_s`, or without it as long as they report progress.

        Raises:
            UnavailableError: The hub that runs here does not answer in time.
            InterruptedWorkError: Ctrl-C; the hub goes on.
        """
        from iothub.cli.local_hub import Patience

        patience = Patience(COMMAND_TIMEOUT_S) if timeout_s is None else Patience(timeout_s, timeout_s)
        result = self.hub.change(verb, tenant, argument, patience, on_progress)
        self._note_unanswered(result)
        return result

    @property
    def is_all_answered(self) -> bool:
        """Whether every hub that was asked has answered so far."""
        return not self._unanswered

    def require_all_answered(self) -> None:
        """Raise UnavailableError for hubs that did not answer, once what the others answered is printed."""
        if self._unanswered:
            first, *others = self._unanswered
            error = UnavailableError(first)
            error.details = (*others, _LEFT_OUT)
            raise error

    def _note_unanswered(self, result: Json) -> None:
        for hub in cast("list[Json | str]", result.get("unanswered", [])):
            text = hub if isinstance(hub, str) else f"hub {hub['hub']} did not answer: {hub['reason']}"
            self._unanswered.append(text)  # an API gives the text

    def close(self) -> None:
        if self._store is not None:
            if self._store.has_changed:
                self.hub.hint_changes()
            self._store.close()

    # --- what commands say and ask

    def rows(self, rows: Sequence[Row], *columns: str) -> None:
        output.write_rows(rows, columns, self.form)

    def record(self, record: Row) -> None:
        output.write_record(record, self.form)

    def section(self, title: str, rows: Sequence[Row]) -> None:
        """Print a list that belongs to the record above it, in a table only; other formats have it in the record."""
        if self.form == "table" and rows:
            output.write_text(f"\n{title}")
            output.write_rows(rows, list(rows[0]), self.form)

    def done(self, message: str, record: Row | None = None) -> None:
        """Confirm a change: a sentence for people, the changed object for scripts."""
        if self.form != "table" and record is not None:
            output.write_record(record, self.form)
        else:
            self.say(message)

    def say(self, message: str) -> None:
        """Print a message on standard error; the commands that it names work when pasted."""
        output.say(self.hints.complete(message))

    def say_more_follow(self, last: object) -> None:
        """Say that --limit cut the list after `last`, and how to continue; None: the list is complete."""
        if last is not None:
            self.say(f"iothub: output truncated; continue with --after={output.cell(shlex.quote(str(last)))}")

    def agree(self, option: str, *, is_agreed: bool, confirmed: str | None) -> None:
        """Take what the options --yes and --confirm say; see `destroying_verb`. Raises ConfigError: neither was given, and nobody can be asked."""
        self._is_agreed, self._confirmed = is_agreed, confirmed
        if not (is_agreed or confirmed is not None or self.is_interactive):
            raise ConfigError(
                f"this cannot be undone, and nobody can be asked (no terminal, or --no-input): to confirm, add {option}"
            )

    def confirm(self, question: str) -> None:
        """Ask in a `destroying_verb`, unless --yes has answered. A declined question ends the command with exit code 1."""
        if not self._is_agreed and not click.confirm(question, err=True):
            _cancel()

    def may_delete(self, what: str, record: Row, *, is_dry_run: bool) -> bool:
        """Ask before `what` is deleted; with --dry-run only print it. False: delete nothing."""
        if is_dry_run:
            self.done(f"would delete {what}", {**record, "is_deleted": False})
        else:
            self.confirm(f"Delete {what}?")
        return not is_dry_run

    def deleted(self, what: str, record: Row) -> None:
        """Say that `what` is deleted."""
        self.done(f"deleted {what}", {**record, "is_deleted": True})

    def confirm_by_name(self, name: str, what: str) -> None:
        """Require the object's name, by --confirm or typed, before a deletion that is hard to repair.

        Raises:
            ConfigError: --confirm has another one.
        """
        if self._confirmed is None:
            if click.prompt(f"This deletes {what}. Type its name to confirm", err=True) != name:
                _cancel()
        elif self._confirmed != name:
            raise ConfigError(f"--confirm {self._confirmed!r} is not the name: expected {name!r}; nothing was deleted")

    def read_secret(self, *, is_stdin: bool, file: Path | None, is_prompted: bool) -> str | None:
        """Return the secret that the options name, None when they name none. Never from a flag: those show in process lists.

        Raises:
            ConfigError: More than one source, no terminal to ask on, or the text is no secret.
        """
        if is_stdin + (file is not None) + is_prompted > 1:
            raise ConfigError("expected one of --password-stdin, --secret-file and --prompt, got several")
        if is_stdin and not self.is_interactive:
            return _secret_text(sys.stdin.buffer.read(_SECRET_LIMIT_BYTES + 1), "standard input")
        if file is not None:
            try:
                with file.open("rb") as source:
                    return _secret_text(source.read(_SECRET_LIMIT_BYTES + 1), str(file))
            except OSError as error:
                raise cannot_be_read(file, error) from None
        if not (is_prompted or is_stdin):
            return None
        if not self.is_interactive:
            raise ConfigError("cannot ask for the password without a terminal: use --password-stdin or --secret-file")
        return str(click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True))


def verb(
    group: click.Group, name: str, kind: type[click.Command] | None = None
) -> Callable[[Callable[..., None]], click.Command]:
    """Make a function a command of `group`, with `-o` and `--help`; its first parameter is the App.

    It ends with the exit code of UnavailableError if a hub that it asked did not answer.
    """

    def decorate(function: Callable[..., None]) -> click.Command:
        @functools.wraps(function)
        def run(app: App, *given: Any, **named: Any) -> None:
            function(app, *given, **named)
            app.require_all_answered()

        command: click.Command = click.command(name, cls=kind or Command)(click.pass_obj(run))
        group.add_command(command)
        return command

    return decorate


def destroying_verb(
    group: click.Group,
    name: str,
    *,
    dry_run: str = "Show what would be deleted; delete nothing.",
    is_severe: bool = False,
) -> Callable[[Callable[..., None]], click.Command]:
    """As `verb`, for what cannot be had back: adds --dry-run, and --yes or, if it is severe, --confirm NAME.

    Invariant: without a terminal, or with --no-input, nothing is looked at and nothing is destroyed unless that option is given.
    The function gets `is_dry_run`; without it, it asks (`App.confirm`, `may_delete`, `confirm_by_name`) before it destroys anything.
    """

    def decorate(function: Callable[..., None]) -> click.Command:
        @functools.wraps(function)
        def run(
            app: App, *, is_dry_run: bool, is_agreed: bool = False, confirm: str | None = None, **given: Any
        ) -> None:
            if not is_dry_run:
                option = f"--confirm {shlex.quote(given['name'])}" if is_severe else "--yes"
                app.agree(option, is_agreed=is_agreed, confirmed=confirm)
            function(app, is_dry_run=is_dry_run, **given)

        answer = _CONFIRM if is_severe else _AGREED
        option = click.option("--dry-run", "is_dry_run", is_flag=True, help=dry_run)
        return verb(group, name, DestroyingCommand)(answer(option(run)))

    return decorate


def _cancel() -> NoReturn:
    output.say("Cancelled; nothing was changed")
    raise click.exceptions.Exit(1)


class Placing(click.Command):
    """A command that says where an option of the whole run stands."""

    def parse_args(self, context: click.Context, words: list[str]) -> list[str]:
        try:
            return super().parse_args(context, words)
        except click.NoSuchOption as error:
            raise _out_of_place(error, context) from None


class Command(Placing):
    """A command with `-o`, whose docstring may end in paragraphs of examples that keep their lines."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        text = options.get("help") or ""
        options["help"] = keep_examples(text)
        options["short_help"] = first_sentence(text)
        super().__init__(*arguments, **options)
        for parameter in self.params:
            if parameter.name in _COMPLETED:
                _complete_values(parameter)
        self.params += [output_option(), *_late_flags()]

    def invoke(self, context: click.Context) -> Any:
        app = context.obj
        if isinstance(app, App):
            app.require_counterpart(context.command_path.partition(" ")[2])
        return super().invoke(context)


class DestroyingCommand(Command):
    """What `destroying_verb` makes: a test looks for commands that ought to be one."""


def _complete_values(parameter: click.Parameter) -> None:
    """Let the shell complete values of this parameter; what knows them is loaded only then."""

    def shell_complete(context: click.Context, incomplete: str) -> list[CompletionItem]:
        from iothub.cli.completed_values import complete

        root = context.find_root().params
        if root.get("context_name"):
            return []  # the shell does not wait for another machine
        app = App(root.get("data_dir") or default_data_dir(), root.get("config_file"), Hints(), is_input_allowed=False)
        return complete(parameter.name or "", context, incomplete, app.store_to_complete)

    parameter.shell_complete = shell_complete  # type: ignore[assignment]  # one place instead of one for each argument


def keep_examples(text: str) -> str:
    """Mark the paragraphs of a docstring that must not be wrapped, in click's way."""
    paragraphs = inspect.cleandoc(text).split("\n\n")
    return "\n\n".join(f"\b\n{part}" if part.startswith(_UNWRAPPED) else part for part in paragraphs)


def first_sentence(text: str) -> str:
    """Return what a list of commands says about one: whole, not cut at some width."""
    paragraph = " ".join(inspect.cleandoc(text).partition("\n\n")[0].split())
    return f"{paragraph.partition('. ')[0].removesuffix('.')}."


def output_option(*, is_hidden: bool = False) -> click.Option:
    """The option `-o`, understood before and after the noun."""
    return click.Option(
        ["-o", "--output"],
        type=click.Choice(output.FORMATS),
        expose_value=False,
        hidden=is_hidden,
        callback=_choose_form,
        help="How to print: table (default), json, jsonl (one object per line) or csv.",
    )


def _late_flags() -> list[click.Option]:
    """The flags of a whole run, understood after the verb, too; the help has them once, before the noun."""
    flags = (("--no-input", _forbid_input), ("--debug", None))  # --debug is looked for in all words
    return [
        click.Option(
            [name], is_flag=True, expose_value=False, hidden=True, callback=callback, help="As before the noun."
        )
        for name, callback in flags
    ]


def _forbid_input(context: click.Context, _option: click.Parameter, is_given: bool) -> None:
    app = context.find_root().obj
    if is_given and isinstance(app, App):
        app.forbid_input()


def _out_of_place(error: click.NoSuchOption, context: click.Context) -> click.UsageError:
    root = context.find_root()
    option = next((each for each in root.command.params if error.option_name in each.opts), None)
    if not isinstance(option, click.Option):
        return error
    program, _, words = context.command_path.partition(" ")
    rest = "" if option.is_flag else f" VALUE {words} ..."
    return click.UsageError(f"{error.option_name} stands before the noun: {program} {error.option_name}{rest}", context)


class Suggesting(Placing, click.Group):
    """A group that names the command that was probably meant."""

    def resolve_command(
        self, context: click.Context, words: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = words[0]
        is_known = self.get_command(context, name) is not None or name.startswith("-") or context.resilient_parsing
        if not is_known:
            nearest = get_close_matches(name, self.list_commands(context), n=1)
            hint = f" Did you mean {nearest[0]!r}?" if nearest else ""
            raise click.UsageError(f"No such command {name!r}.{hint}", context)
        return super().resolve_command(context, words)


def noun(name: str, text: str) -> click.Group:
    """Make the group of one noun's commands."""
    params: list[click.Parameter] = [output_option(is_hidden=True), *_late_flags()]
    return Suggesting(name, help=text, short_help=first_sentence(text), no_args_is_help=True, params=params)


def _choose_form(context: click.Context, _option: click.Parameter, form: str | None) -> None:
    app = context.find_root().obj
    if form is not None and isinstance(app, App):
        app.form = form


def _secret_text(octets: bytes, source: str) -> str:
    if len(octets) > _SECRET_LIMIT_BYTES:
        raise ConfigError(f"{source}: longer than {_SECRET_LIMIT_BYTES} bytes: too long for a secret")
    try:
        text = octets.decode("utf-8")
    except UnicodeDecodeError:
        raise ConfigError(f"{source}: not UTF-8 text") from None
    secret = text.removesuffix("\n").removesuffix("\r")
    if not secret or "\n" in secret:
        raise ConfigError(
            f"{source}: expected a secret on one line, got {'nothing' if not secret else 'several lines'}"
        )
    return secret


def _actor() -> str:
    """Say whom the audit log names for a command: the user, and who he was before sudo."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a user id without a name, in a container
        user = str(os.getuid())
    before = os.environ.get("SUDO_USER")
    return f"cli:{before} as {user}" if before else f"cli:{user}"


def default_data_dir() -> Path:
    base = os.environ.get("XDG_DATA_HOME")
    return (Path(base) if base else Path.home() / ".local/share") / "iothub"
