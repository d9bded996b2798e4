"""Devices of a file, imported by the API of another machine: checked whole, then written in parts, each of them all or none.

Knows no bar and no place for secrets: the caller gets the names of every part that is written, with the secrets that were made for it.

Theory. The secrets of a part are in its answer and nowhere else, so an answer that is lost is asked for again with the same Idempotency-Key.
What was not answered in the end may be written or not: the report says so, and with which line to go on.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from iothub.base.errors import InterruptedWorkError, IotHubError, PartlyDoneError, UnavailableError
from iothub.cli.remote_api import RemoteApi, Reply, filled
from iothub_tenants.accounts.csv_rows import CsvRows, DeviceRow, header_lines, lines_from, read_csv_rows

CHECKED_ROWS = 5_000
WRITTEN_ROWS = 1_000
WRITTEN_PASSWORDS = 100  # tens of milliseconds each, there
PART_CHARACTERS = 1 << 20
PAUSES_S = (1.0, 2.0, 4.0, 8.0, 15.0)
LONGEST_WAIT_S = 120.0  # that an API may ask for

OnPart = Callable[[Sequence[str], Sequence[tuple[str, str]]], None]
"""`on_part(names, [(name, secret), ...])`: these devices are written."""

Waiting = Callable[[], AbstractContextManager[None]]

Progress = Callable[[str, int, int], None]
"""`progress(what, done, of)`."""


@dataclass(frozen=True, slots=True)
class Part:
    """Rows that are sent together. `first`: the line of the first one; `after`: the line behind the last one."""

    first: int
    after: int
    names: Sequence[str]
    text: str


class RemoteImport:
    """One import. `from_line`: the lines before it, but for the header, are left out."""

    def __init__(
        self,
        api: RemoteApi,
        tenant: str,
        lines: Sequence[str],
        *,
        from_line: int | None,
        is_generating: bool,
        progress: Progress,
        warn: Callable[[str], None],
    ) -> None:
        """`warn(text)`: something is tried again. Raises ConfigError: `from_line` is not in the file."""
        self._api = api
        self._tenant = tenant
        self._lines = lines
        self._from_line = from_line
        self._is_generating = is_generating
        self._progress = progress
        self._warn = warn
        self._run = secrets.token_hex(8)
        self._rows = self._read()
        self._done: list[str] = []
        self._is_reached = False
        self._is_unanswered = False
        self._is_stopped: Callable[[], bool] = lambda: False
        self._waiting: Waiting = nullcontext

    def check(self) -> list[str]:
        """Have all rows checked; nothing is written. Return the names of the devices.

        Raises IotHubError: as the import of the same file on the hub's machine.
        """
        names, parts = list(self._rows.devices), list(self._parts(CHECKED_ROWS, CHECKED_ROWS))
        if len(parts) > 1:
            self._rows.refuse()
        checked = 0
        for part in parts:
            try:
                with self._api.understood():
                    self._api.read(self._reply(part, is_dry_run=True))
            except IotHubError as error:
                if part is not parts[-1] and error.details:
                    error.details = (*error.details, f"lines from {part.after} on were not checked yet")
                raise
            checked += len(part.names)
            self._progress("rows checked", checked, len(names))
        return names

    def write(self, on_part: OnPart, is_stopped: Callable[[], bool], waiting: Waiting) -> list[str]:
        """Write what was checked, and return the names. `is_stopped`: whether to end before the next part. `waiting`: where Ctrl-C may interrupt.

        Raises:
            PartlyDoneError: some of the devices are written, or may be.
            IotHubError: none is.
        """
        self._is_stopped, self._waiting = is_stopped, waiting
        for part in self._parts(WRITTEN_ROWS, WRITTEN_PASSWORDS):
            self._is_unanswered = False
            try:
                with self._api.understood():
                    answer = self._api.read(self._reply(part, is_dry_run=False))
                    names, made = answer["devices"], [(each["name"], each["secret"]) for each in answer["secrets"]]
            except KeyboardInterrupt:
                self._is_unanswered = True
                raise self._stopped(part, InterruptedWorkError("interrupted")) from None
            except IotHubError as error:
                raise self._stopped(part, error) from error
            self._done += names
            try:
                on_part(names, made)
            except IotHubError as error:
                raise self._not_kept(part, error) from error
            self._progress("devices written", len(self._done), len(self._rows.devices))
        return self._done

    def _read(self) -> CsvRows:
        lines = self._lines if self._from_line is None else lines_from(self._lines, self._from_line)
        return read_csv_rows(lines, is_generating=self._is_generating, first_line=self._from_line)

    def _parts(self, most_rows: int, most_passwords: int) -> Iterator[Part]:
        """Cut the file where rows begin. One without a row is a part, too: there is a tenant to be asked for."""
        entries = list(self._rows.devices.items())
        start = 0
        while True:
            end = self._end(entries, start, most_rows, most_passwords)
            is_first, is_last = start == 0, end == len(entries)
            first = (self._from_line or header_lines(self._lines) + 1) if is_first else entries[start][1].line
            after = len(self._lines) + 1 if is_last else entries[end][1].line
            text = "".join([*self._lines[: header_lines(self._lines)], *self._lines[first - 1 : after - 1]])
            yield Part(first, after, [name for name, _ in entries[start:end]], text)
            if is_last:
                return
            start = end

    def _end(self, entries: Sequence[tuple[str, DeviceRow]], start: int, most_rows: int, most_passwords: int) -> int:
        passwords = characters = 0
        for place in range(start, len(entries)):
            row = entries[place][1]
            after = entries[place + 1][1].line if place + 1 < len(entries) else len(self._lines) + 1
            passwords += row.password is not None
            characters += sum(map(len, self._lines[row.line - 1 : after - 1]))
            is_full = place - start == most_rows or passwords > most_passwords or characters > PART_CHARACTERS
            if is_full and place > start:
                return place
        return len(entries)

    def _reply(self, part: Part, *, is_dry_run: bool) -> Reply:
        """Send a part until there is an answer that says something of it. Raises UnavailableError, InterruptedWorkError."""
        query: Mapping[str, Any] = {
            "dry_run": is_dry_run,
            "generate_secrets": self._is_generating,
            "first_line": part.first,
        }
        path = filled("/tenants/{tenant}/devices:import", {"tenant": self._tenant})
        key = "" if is_dry_run else f"{self._run}-{part.first}"
        for pause_s in (*PAUSES_S, None):
            if self._is_stopped():
                raise InterruptedWorkError("interrupted")
            try:
                with self._waiting():
                    reply = self._api.reply_to_csv(path, part.text, query, key)
            except UnavailableError as error:
                self._is_unanswered = True
                if pause_s is None or not self._is_reached:
                    raise
                wait_s, why = pause_s, str(error)
            else:
                found = _wait_s(reply, pause_s)
                self._is_unanswered |= reply.status >= 500
                if found is None:
                    self._is_reached = True
                    return reply
                wait_s, why = found, f"the API of context {self._api.name} answers {reply.status}"
            self._warn(f"{why}; trying again in {wait_s:.0f} s")
            with self._waiting():
                time.sleep(wait_s)
        raise AssertionError("the last try returns or raises")

    def _not_kept(self, part: Part, error: IotHubError) -> IotHubError:
        """Say that devices are written whose secrets are lost."""
        made = PartlyDoneError(f"{self._counted(part.after)}; then: {error}", exit_code=error.exit_code)
        made.details = (
            f"the secrets of lines {part.first} to {part.after - 1} are lost: `iothub device rotate-secret` makes new ones",
            f"go on with the option --from-line {part.after}, and a new file for --secrets-to",
        )
        return made

    def _counted(self, before: int) -> str:
        counted = f"imported {len(self._done)} of {len(self._rows.devices)} devices"
        return f"{counted}, those before line {before}" if self._done else counted

    def _stopped(self, part: Part, error: IotHubError) -> IotHubError:
        """Say what is done, what may be, and how to go on; `error` itself, if nothing is."""
        is_answered = not self._is_unanswered
        if not self._done and is_answered and not isinstance(error, InterruptedWorkError):
            return error
        made = PartlyDoneError(f"{self._counted(part.first)}; then: {error}", exit_code=error.exit_code)
        go_on = f"go on with the option --from-line {part.first}"
        more = ", and a new file for --secrets-to" if self._is_generating and self._done else ""
        if is_answered:
            made.details = (*error.details, f"{go_on}{more}")
            return made
        show = f"`iothub device show {self._tenant} {part.names[0]}`"
        lost = "; their secrets are lost then: `iothub device rotate-secret` makes new ones" * self._is_generating
        made.details = (
            *error.details,
            f"lines {part.first} to {part.after - 1} were sent and not answered: all or none of their devices exist; {show} says which{lost}",
            f"{go_on}, or {part.after} if they exist{more}",
        )
        return made


def _wait_s(reply: Reply, pause_s: float | None) -> float | None:
    """Return how long to wait before the same is asked again; None: the answer stands. `pause_s`: at least so long; None: no more."""
    if pause_s is None:
        return None
    if reply.status == 429:
        wait_s = max(reply.wait_s, pause_s)
        return wait_s if wait_s <= LONGEST_WAIT_S else None
    return pause_s if reply.status in (408, 502, 503, 504) or _is_under_way(reply) else None


def _is_under_way(reply: Reply) -> bool:
    """Is the first request with the same key not finished?"""
    if reply.status != 409:
        return False
    try:
        return bool(json.loads(reply.body)["code"] == "idempotency_in_progress")
    except (ValueError, KeyError, TypeError):
        return False
