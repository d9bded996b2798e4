"""Requests to the running hub of a data directory over its local socket; blocking, one connection per request.

Knows no verb: `iothub.records.admin_commands` names them. Its errors say who does not answer and what to do.
"""

from __future__ import annotations

import math
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from iothub.base.errors import ErrorList, InterruptedWorkError, UnavailableError
from iothub.config.datadir import DataDir
from iothub.net import admin_frames
from iothub.net.admin_frames import FrameDecoder
from iothub.records.admin_commands import Json, Request, Verb

SILENCE_S = 15.0  # longer than a hub waits for the session log before it refuses (10 s)
_HELLO_BYTES = 1 << 10
_HINT_S = 0.3
_READ_BYTES = 64 << 10
_LEAST_S = 0.001  # 0 would mean: do not wait at all, and not even read what is there
_CLOSED = (
    "the hub closed the connection without an answer: it is stopping or has too many requests; see `iothub status`"
)


class Answer(NamedTuple):
    """What a hub has answered."""

    rows: list[Json]
    result: Json


OnProgress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Patience:
    """How long somebody waits: `silence_s` for a sign of life, `total_s` in all."""

    silence_s: float = SILENCE_S
    total_s: float = math.inf


class LocalHub:
    """Sends requests to the hub that holds a data directory; with several workers, to one that answers: each asks the others."""

    def __init__(self, data_dir: DataDir) -> None:
        self._data_dir = data_dir

    def ask(self, verb: Verb, tenant: str, argument: Json, silence_s: float = SILENCE_S) -> Answer:
        """Raises UnavailableError: no hub answers here, or not within `silence_s`. Any other IotHubError: the hub's own refusal."""
        gathered: list[Json] = []
        try:
            result = self._exchange(Request(verb, tenant, argument), Patience(silence_s), gathered.extend)
        except TimeoutError:
            raise UnavailableError(f"no answer within {silence_s:.0f} s; see `iothub status`") from None
        return Answer(gathered, result)

    def change(
        self, verb: Verb, tenant: str, argument: Json, patience: Patience, on_progress: OnProgress | None = None
    ) -> Json:
        """Have the hub do what it does not stop when nobody waits any more; return the result.

        `on_progress(done, of)`: what all hubs that do it have reported so far.

        Raises:
            UnavailableError: No hub answers here, or not in time.
            InterruptedWorkError: Ctrl-C.
            IotHubError: The hub's own refusal.
        """
        reported: dict[object, tuple[int, int]] = {}

        def note(rows: list[Json]) -> None:
            reported.update({row.get("node"): (int(str(row["done"])), int(str(row["total"]))) for row in rows})
            if rows and on_progress is not None:
                on_progress(*_added_up(reported))

        began = time.monotonic()
        try:
            return self._exchange(Request(verb, tenant, argument), patience, note)
        except TimeoutError:
            seconds = max(1, round(time.monotonic() - began))
            raise UnavailableError(f"no answer within {seconds} s: {_goes_on(reported)}; see `iothub status`") from None
        except KeyboardInterrupt:
            raise InterruptedWorkError(
                f"interrupted: {_goes_on(reported)}; run it again to see whether it is done"
            ) from None

    def hint_changes(self) -> None:
        """Have the hub read the changes of the accounts now, if one runs here, and wait for nothing: else it reads them at its next look."""
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as connection:
            connection.settimeout(_HINT_S)
            self._reach(connection)
            connection.sendall(admin_frames.hello() + admin_frames.request_frame(Request(Verb.ACCOUNTS_APPLY, "", {})))
            connection.recv(_HELLO_BYTES)  # a socket that is closed with its greeting unread takes the request with it

    def ask_workers(self, verb: Verb) -> list[Answer]:
        """Ask each worker that runs here, or the hub itself if it has none; what each does for itself, the others cannot do for it.

        Raises as `ask`, when all were asked.
        """
        living = [LocalHub(worker) for worker in self._data_dir.workers() if worker.holder() is not None]
        errors, answers = ErrorList(), []
        for hub in living or [self]:
            with errors.gathering():
                answers.append(hub.ask(verb, "", {}))
        errors.raise_first()
        return answers

    def require(self) -> None:
        """Raises UnavailableError: no hub runs here."""
        if self._data_dir.holder() is None:
            raise UnavailableError(
                f"no hub runs in {self._data_dir.path}: only a running hub can do this (clients, sessions, queues, retained messages, a reload); "
                "start it with `iothub serve`"
            )

    def _exchange(self, request: Request, patience: Patience, on_rows: Callable[[list[Json]], None]) -> Json:
        """Raises TimeoutError: no answer in time. UnavailableError, or the hub's own refusal."""
        with self._connect() as connection:
            try:
                connection.sendall(admin_frames.hello() + admin_frames.request_frame(request))
                for frame in _frames(connection, patience):
                    rows = admin_frames.rows_in(frame)
                    if rows is None:
                        return admin_frames.result_in(frame)
                    on_rows(rows)
            except TimeoutError:
                raise
            except OSError:
                raise UnavailableError(_CLOSED) from None
        raise AssertionError("`_frames` does not end without an answer")

    def _connect(self) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        connection.settimeout(SILENCE_S)
        try:
            self._reach(connection)
        except OSError as error:
            connection.close()
            self.require()
            raise UnavailableError(self._why_not(error)) from None
        return connection

    def _reach(self, connection: socket.socket) -> None:
        """Connect to the first process that listens. Raises OSError: none does."""
        *others, last = (self._data_dir, *([] if self._data_dir.worker else self._data_dir.workers()))
        for each in others:
            with suppress(OSError), each.admin_address() as address:
                connection.connect(address)
                return
        with last.admin_address() as address:
            connection.connect(address)

    def _why_not(self, error: OSError) -> str:
        """Say why the process that holds the directory does not answer."""
        if starting := why_starting(self._data_dir):
            return f"the hub is starting and does not answer yet: {starting}; see `iothub status`"
        if isinstance(error, FileNotFoundError) and self._data_dir.read_hub() is not None:
            return (
                f"the hub ({self._data_dir.holder() or 'another process'}) takes no commands yet: it starts, or begins again after the others "
                "went on without it; its log and /readyz say what it waits for"
            )
        return (
            f"{self._data_dir.path} is in use by {self._data_dir.holder() or 'another process'}, which does not answer on "
            f"{self._data_dir.admin_socket.name}: {error.strerror or error}"
        )


def why_starting(data_dir: DataDir) -> str:
    """Return what a hub that starts waits for, as its file says; with several workers, what they wait for. Empty: it does not start."""
    workers = [] if data_dir.worker else [worker for worker in data_dir.workers() if worker.holder() is not None]
    found = {str(starting) for worker in workers if (starting := (worker.read_hub() or {}).get("starting"))}
    return "; ".join(sorted(found)) or str((data_dir.read_hub() or {}).get("starting", ""))


def _frames(connection: socket.socket, patience: Patience) -> Iterator[Json]:
    """Yield what the hub says behind its hello. Raises UnavailableError: it has closed the connection. TimeoutError."""
    decoder, is_greeted, began = FrameDecoder(), False, time.monotonic()
    while True:
        left_s = patience.total_s - (time.monotonic() - began)
        connection.settimeout(max(min(patience.silence_s, left_s), _LEAST_S))
        data = connection.recv(_READ_BYTES)
        if not data:
            raise UnavailableError(_CLOSED)
        for frame in decoder.feed(data):
            if is_greeted:
                yield frame
            else:
                admin_frames.check_hello(frame)
                is_greeted = True


def _added_up(reported: Mapping[object, tuple[int, int]]) -> tuple[int, int]:
    return sum(done for done, _ in reported.values()), sum(of for _, of in reported.values())


def _goes_on(reported: Mapping[object, tuple[int, int]]) -> str:
    so_far = " ({} of {})".format(*_added_up(reported)) if reported else ""
    return f"the hub has not finished the command{so_far}, and continues it"
