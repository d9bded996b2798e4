"""Adds the global options of this run to the commands that a message names, so that they work when pasted.

Knows no command: it finds them in backquotes or after "next: ".
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path

_COMMAND = re.compile(r"(`|^next: )iothub (?!-)([^`\n]+)", re.MULTILINE)
_NEEDS_NO_DIRECTORY = re.compile(r"(cert|completion|context|version)\b|.*--(help|reference)\b")


class Hints:
    """Completes the commands in messages; with the default directory and file they stay as they are."""

    def __init__(self) -> None:
        self._options = ""
        self._takes_them: Callable[[str], bool] = lambda _words: True

    def give(
        self,
        data_dir: Path | None,
        config_file: Path | None,
        context: str | None = None,
        takes_them: Callable[[str], bool] = lambda _words: True,
    ) -> None:
        """Take the options of this run; None where the default holds. The environment of another shell may lack ours.

        `takes_them`: whether a command, given with its arguments, can be run with them.
        """
        self._takes_them = takes_them
        given = (("--data-dir", data_dir), ("--config", config_file), ("--context", context))
        self._options = "".join(f"{option} {shlex.quote(str(path))} " for option, path in given if path is not None)

    def complete(self, message: str) -> str:
        """Return the message with every command as it must be typed here."""
        return _COMMAND.sub(self._completed, message)

    def _completed(self, found: re.Match[str]) -> str:
        before, words = found.groups()
        is_left = _NEEDS_NO_DIRECTORY.match(words) or not self._takes_them(words)
        options = "" if is_left else self._options
        return f"{before}iothub {options}{words}"
