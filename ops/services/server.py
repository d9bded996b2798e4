"""What has to be known of a server to start it, to find it again and to stop it. Knows no server by name."""

from __future__ import annotations

import hashlib
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Server:
    """One server, ready to be started.

    Attributes:
        command: Its program, with whatever must stand before the mark by which its process is found again.
        arguments: What follows the mark.
        files: Name below its folder -> text; written before a start.
        ports: Must be free before a start.
        ask: Raises until the server answers.
        prepare: Done before a start, once the files are there.
        tool: For servers in Java: the program, settings and class path with which their own tools run.
    """

    name: str
    command: tuple[str, ...]
    arguments: tuple[str, ...]
    files: Mapping[str, str]
    ports: tuple[int, ...]
    ask: Callable[[], None]
    prepare: Callable[[], None] = field(default=lambda: None)
    tool: tuple[str, ...] = ()

    def fingerprint(self) -> str:
        """Return a digest of all that was decided before the start: a server with another one is out of date."""
        description = repr((self.command, self.arguments, sorted(self.files.items())))
        return hashlib.sha256(description.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Habits:
    """How a server's process is recognised and stopped.

    Attributes:
        mark: An argument that no other process has; `{folder}` is the server's folder.
        stop_signal: Ends it in good order without waiting for its clients.
    """

    mark: str = "-Diothub.server={folder}"
    stop_signal: signal.Signals = signal.SIGTERM
