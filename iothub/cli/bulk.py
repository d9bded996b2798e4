"""The import of many devices: its progress, the place of its secrets, and Ctrl-C.

Knows no hash and no row: `iothub_tenants.accounts.imports` reads, checks and writes.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from types import FrameType, TracebackType
from typing import TypeAlias

from iothub.base.errors import InterruptedWorkError
from iothub.cli import accounts, output
from iothub.cli.app import App
from iothub.cli.files import DASH, opened_lines
from iothub.cli.progress import StagedProgress
from iothub.cli.secrets_file import Secrets, SecretsFile, SecretsOutput

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


class Import:
    """One import, of `file` into `tenant`. `secrets_to`: where generated secrets go, `-` is standard output; None: there are none.

    `read`: reads a file of another form than CSV of ours.
    """

    def __init__(
        self,
        app: App,
        tenant: str,
        file: Path,
        secrets_to: Path | None,
        *,
        read: accounts.imports.Read | None = None,
        is_dry_run: bool,
    ) -> None:
        self._app = app
        self._read = read
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
            return accounts.imports.import_devices(
                self._app.store(),
                self._tenant,
                lines,
                read=self._read,
                keep=None if self._secrets_to is None else self._keep,
                on_progress=self._progress.report,
                before_write=before_write,
                is_dry_run=self._is_dry_run,
            )

    def _keep(self, made: Sequence[tuple[str, str]]) -> None:
        self._made = made

    def _lines(self, names: Sequence[str]) -> list[str]:
        """Write the secrets as CSV; as standard output in JSON, within the one object that a script expects there."""
        rows = [(name, f"{self._tenant}/{name}", secret) for name, secret in self._made]
        if self._secrets_to != DASH or self._app.form not in ("json", "jsonl"):
            return [_HEADER, *(",".join(row) for row in rows)]
        secrets = [dict(zip(_HEADER.split(","), row, strict=True)) for row in rows]
        return [output.as_json({"name": self._tenant, "devices": list(names), "secrets": secrets}, self._app.form)]

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
