"""The import of many devices: its progress, the place of its secrets, and Ctrl-C.

Knows no hash and no row: `iothub_tenants.accounts.imports` reads, checks and writes; with a context `iothub.cli.remote_import` sends.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, TypeAlias

from iothub.base.errors import ConfigError, InterruptedWorkError, PartlyDoneError
from iothub.cli import accounts, output
from iothub.cli.app import App
from iothub.cli.files import DASH, opened_lines
from iothub.cli.progress import StagedProgress
from iothub.cli.secrets_file import Secrets, SecretsFile, SecretsOutput

if TYPE_CHECKING:
    from iothub.cli.remote_api import RemoteApi
    from iothub.cli.remote_import import RemoteImport
    from iothub_tenants.accounts.csv_rows import CsvRows

_HEADER = "name,username,secret"

_Handler: TypeAlias = Callable[[int, FrameType | None], object] | int | None


class InterruptGuard:
    """Ctrl-C works until `hold`, and again behind the block: an interrupted commit may have happened or not."""

    def __init__(self) -> None:
        self._before: _Handler = None

    def hold(self) -> None:
        self._before = signal.signal(signal.SIGINT, signal.SIG_IGN)

    def __enter__(self) -> InterruptGuard:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)


class InterruptNote:
    """The first Ctrl-C is noted, for work in parts; the next one interrupts what waits, and nothing else: a part that is done is kept."""

    def __init__(self, warn: Callable[[str], None]) -> None:
        self._warn = warn
        self._before: _Handler = None
        self._is_noted = False
        self._is_waiting = False

    def is_noted(self) -> bool:
        return self._is_noted

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """What is done within may be interrupted."""
        self._is_waiting = True
        try:
            yield
        finally:
            self._is_waiting = False

    def __enter__(self) -> InterruptNote:
        self._before = signal.signal(signal.SIGINT, self._noted)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        signal.signal(signal.SIGINT, self._before)

    def _noted(self, _number: int, _frame: FrameType | None) -> None:
        if self._is_noted:
            if self._is_waiting:
                raise KeyboardInterrupt
            return
        self._is_noted = True
        with suppress(RuntimeError):  # standard error is being written to
            self._warn("stopping after this part; Ctrl-C again stops at once")


class Import:
    """One import, of `file` into `tenant`. `secrets_to`: where generated secrets go, `-` is standard output; None: there are none.

    `read`: reads a file of another form than CSV of ours. `from_line`: the lines before this one, but for the header, are left out.
    """

    def __init__(
        self,
        app: App,
        tenant: str,
        file: Path,
        secrets_to: Path | None,
        *,
        read: accounts.imports.Read | None = None,
        from_line: int | None = None,
        is_dry_run: bool,
    ) -> None:
        self._app = app
        self._read = read
        self._from_line = from_line
        self._is_dry_run = is_dry_run
        self._tenant = tenant
        self._file = file
        self._secrets_to = secrets_to
        self._made: Sequence[tuple[str, str]] = ()
        self._progress = StagedProgress()
        self._shield = InterruptGuard()

    def run(self) -> None:
        """Import, and say so.

        Raises:
            PartlyDoneError: It was done in parts, by the API of a context; some devices were imported.
            InterruptedWorkError: Ctrl-C; no device was imported.
            ConfigError, ConflictError, NotFoundError, UnavailableError: No device was imported either.
        """
        if self._is_dry_run:
            self._say_would(self._import(None))
            return
        with self._opened() as secrets, self._shield:
            try:
                names = self._import(secrets)
            except KeyboardInterrupt:
                raise self._interrupted() from None
        self._say(names)

    def _opened(self) -> Secrets | nullcontext[None]:
        if self._secrets_to is None:
            return nullcontext()
        return SecretsOutput() if self._secrets_to == DASH else SecretsFile(self._secrets_to)

    def _import(self, secrets: Secrets | None) -> list[str]:
        """Read, check and, unless this is a dry run, import."""

        def before_write(names: Sequence[str]) -> None:
            self._shield.hold()
            self._progress.end()
            if secrets is not None:
                secrets.write(self._lines(names))

        with opened_lines(self._file) as lines, self._progress:
            if (api := self._app.api) is not None:
                return self._send(api, list(lines), secrets)
            return accounts.imports.import_devices(
                self._app.store(),
                self._tenant,
                lines,
                read=self._read or self._read_rows,
                keep=None if self._secrets_to is None else self._keep,
                on_progress=self._progress.report,
                before_write=before_write,
                is_dry_run=self._is_dry_run,
            )

    def _read_rows(self, lines: Iterable[str]) -> CsvRows:
        from iothub_tenants.accounts.csv_rows import lines_from, read_csv_rows

        first = self._from_line
        taken = lines if first is None else lines_from(list(lines), first)
        return read_csv_rows(taken, is_generating=self._secrets_to is not None, first_line=first)

    def _send(self, api: RemoteApi, lines: Sequence[str], secrets: Secrets | None) -> list[str]:
        """Have it done by the API of a context, in parts."""
        from iothub.cli.remote_import import RemoteImport

        if self._read is not None:
            raise ConfigError("with a context a file must be CSV of ours: run --from on the hub's machine")
        work = RemoteImport(
            api,
            self._tenant,
            lines,
            from_line=self._from_line,
            is_generating=self._secrets_to is not None,
            progress=self._progress.report,
            warn=self._warn,
        )
        names = work.check()
        if self._is_dry_run:
            return names
        self._shield.hold()  # before the first part and behind the last one
        with InterruptNote(self._warn) as note:
            return self._write(work, secrets, note)

    def _write(self, work: RemoteImport, secrets: Secrets | None, note: InterruptNote) -> list[str]:
        """Write the parts, and the secrets of each one once it is written; the one object of JSON in the end."""
        written: list[str] = []
        is_object = self._is_object

        def on_part(names: Sequence[str], made: Sequence[tuple[str, str]]) -> None:
            header = not written
            written.extend(names)
            self._made = [*self._made, *made] if is_object else made
            if secrets is not None and not is_object:
                if self._secrets_to == DASH:
                    self._progress.end()
                secrets.write(self._lines(names)[0 if header else 1 :])

        try:
            work.write(on_part, note.is_noted, note.waiting)
        except PartlyDoneError:
            self._write_object(secrets if written else None, written)
            raise
        self._write_object(secrets, written)
        return written

    def _write_object(self, secrets: Secrets | None, names: Sequence[str]) -> None:
        if secrets is None or not self._is_object:
            return
        try:
            secrets.write(self._lines(names))
        except output.OutputError as error:
            lost = "the secrets are lost: `iothub device rotate-secret` makes new ones"
            count = output.counted(len(names), "device")
            raise PartlyDoneError(f"imported {count}; then: {error}; {lost}", exit_code=error.exit_code) from error

    def _warn(self, text: str) -> None:
        self._progress.end()
        self._app.say(f"iothub: warning: {text}")

    def _keep(self, made: Sequence[tuple[str, str]]) -> None:
        self._made = made

    def _lines(self, names: Sequence[str]) -> list[str]:
        """Write the secrets as CSV; as standard output in JSON, within the one object that a script expects there."""
        rows = [(name, f"{self._tenant}/{name}", secret) for name, secret in self._made]
        if not self._is_object:
            return [_HEADER, *(",".join(row) for row in rows)]
        secrets = [dict(zip(_HEADER.split(","), row, strict=True)) for row in rows]
        return [output.as_json({"name": self._tenant, "devices": list(names), "secrets": secrets}, self._app.form)]

    @property
    def _is_object(self) -> bool:
        return self._secrets_to == DASH and self._app.form in ("json", "jsonl")

    def _interrupted(self) -> InterruptedWorkError:
        so_far = f" ({self._progress.last})" if self._progress.last else ""
        return InterruptedWorkError(f"interrupted: no device was imported{so_far}; run the same command again")

    def _say_would(self, names: list[str]) -> None:
        record = {"name": self._tenant, "devices": names, "is_imported": False}
        self._app.done(f"would import {output.counted(len(names), 'device')}", record)

    def _say(self, names: list[str]) -> None:
        message = f"imported {output.counted(len(names), 'device')}"
        if self._secrets_to is None:
            self._app.done(message, {"name": self._tenant, "devices": names})
        elif self._secrets_to == DASH:
            self._app.say(message)
        else:
            record = {"name": self._tenant, "devices": names, "secrets_file": str(self._secrets_to)}
            self._app.done(f"{message}\ngenerated secrets: {self._secrets_to}", record)
