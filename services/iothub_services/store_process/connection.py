"""A worker's connection to one port of the store process: blocking, one request under way.

Knows no verb. It connects when it is first used, and again after it was lost; nothing is repeated by itself but what only reads.

Theory: an answer that is lost with the connection leaves open whether the request was done. Of a verb whose answer is kept, the next call asks
for that answer first (`verbs.RECALL`): the request was done, and then this is its answer, or it never will be.
"""

from __future__ import annotations

import contextlib
import secrets
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from iothub.base.errors import BackendError
from iothub_services.store_process.frames import (
    VERSION,
    FrameError,
    Shape,
    data,
    framed,
    many,
    maybe,
    pack,
    pair,
    row,
    text,
    unpack,
)
from iothub_services.store_process.sockets import address_of, is_closed, new_socket, receive_frame, set_time_limit
from iothub_services.store_process.verbs import ANSWER, PROBE, RECALL, WELCOME, Verbs, read_outcome

ANSWER_S = 30.0
CONNECT_S = 5.0

AWAY = "the store process is away"
"""With it begins what is said of one that has ended, or that is no longer reached: its supervisor starts it again."""

_REMEDY = "its supervisor starts it again"
_SLOW = "it is busy or frozen, or its disk is slow: its lines in the log say more"
_CLIENT_BYTES = 16
_NOTICES = many(row(pair, text, text))
_RECALLED = maybe(data)

Keep = Callable[[Any], None]
OnNotices = Callable[[list[tuple[str, str]]], None]


class _Open(NamedTuple):
    """A request of which nobody knows whether it was done. `keep`: gets its answer, if it was."""

    asked: int
    shape: Shape[Any]
    keep: Keep


class StoreConnection:
    """Any thread may call it; the others wait.

    Args:
        is_writer: It has a name of its own, under which the store process keeps its answers.
        on_notes: Gets what the port says besides its answers, with each of them.
        answer_s: How long an answer may take.
        on_notices: Gets the alarms (word and text) of a store process that is new to this connection, in the calling thread.
        on_begin: Called with this connection when the store process is a new one, before anything is asked.

    Invariant: `_open` is asked for before anything else is written. Otherwise a repeat would be done beside its first attempt.
    """

    def __init__(
        self,
        path: Path,
        port: str,
        verbs: Verbs,
        *,
        is_writer: bool = False,
        answer_s: float = ANSWER_S,
        on_notes: Callable[[object], None] | None = None,
        on_notices: OnNotices | None = None,
        on_begin: Callable[[StoreConnection], None] | None = None,
    ) -> None:
        self._path = path
        self._port = port
        self._verbs = verbs
        self._client = secrets.token_bytes(_CLIENT_BYTES) if is_writer else b""
        self._answer_s = answer_s
        self._on_notes = on_notes
        self._on_notices = on_notices
        self._on_begin = on_begin
        self._lock = threading.RLock()  # `on_begin` asks over the connection that begins
        self._socket: socket.socket | None = None
        self._incarnation = b""
        self._asked = 0
        self._open: _Open | None = None

    def read(self, verb: str, *args: object) -> Any:
        """Ask what changes nothing; once more if the connection is lost. Raises BackendError, and what the store raises."""
        with self._lock:
            try:
                return self._exchange(verb, args, self._verbs[verb].answer)
            except _LostError:
                pass
            try:
                return self._exchange(verb, args, self._verbs[verb].answer)
            except _LostError as error:
                raise BackendError(error.fact, retryable=True, remedy=error.remedy) from None

    def write(self, verb: str, *args: object, keep: Keep | None = None) -> Any:
        """Ask for something to be done. Raises BackendError, and what the store raises.

        `keep`: when it is not known whether it was done, it gets the answer before the next call that writes, if it was.
        """
        with self._lock:
            self.settle()
            shape = self._verbs[verb].answer
            try:
                return self._exchange(verb, args, shape)
            except BackendError as error:
                if keep is not None and error.is_written:
                    self._open = _Open(self._asked, shape, keep)
                raise

    def settle(self) -> None:
        """Learn what became of the request whose answer was lost, if there is one. Raises BackendError: still not known."""
        with self._lock:
            opened = self._open
            if opened is None:
                return
            recalled = self._exchange(RECALL, (opened.asked,), _RECALLED)
            if self._open is not opened:
                return  # `on_begin` wrote to a new store process, and learned it before
            self._open = None
            if recalled is not None:
                with contextlib.suppress(
                    BackendError
                ):  # it was done, and the answer is an error: not one of a verb that is kept
                    opened.keep(read_outcome(recalled, opened.shape))

    def probe(self) -> None:
        """Have the store commit something small. Raises BackendError."""
        with self._lock:
            self._exchange(PROBE, (), lambda _: None)

    def begin(self) -> None:
        """Connect, if need be. Raises BackendError."""
        with self._lock:
            self._connected()

    def close(self) -> None:
        with self._lock:
            if self._socket is not None:
                self._socket.close()
                self._socket = None

    # --- one exchange

    def _exchange(self, verb: str, args: tuple[object, ...], shape: Shape[Any]) -> Any:
        connection = self._connected()
        self._asked += 1
        try:
            frame = framed(pack((self._asked, verb, args)))
        except FrameError as error:
            raise BackendError(f"{self._port}.{verb}: {error}", retryable=False) from None
        outcome = self._asked_for(connection, verb, frame)
        try:
            return read_outcome(outcome, shape)
        except FrameError as error:
            raise self._senseless(verb, error) from None

    def _asked_for(self, connection: socket.socket, verb: str, frame: bytes) -> bytes:
        """Send a request and return the outcome."""
        is_sent = False
        try:
            connection.sendall(frame)
            is_sent = True
            answer: tuple[Any, ...] = ANSWER(unpack(receive_frame(connection)))
            asked, outcome, notes = answer
            if asked != self._asked:
                raise FrameError(f"the answer to request {asked} for {self._asked}")
            if self._on_notes is not None and notes is not None:
                self._on_notes(notes)
        except BlockingIOError:
            text = f"the store process has not answered {self._port}.{verb} in {self._answer_s:g} s"
            raise self._lost(text, _SLOW, is_written=is_sent) from None
        except OSError as error:
            text = f"{AWAY} since {self._port}.{verb}: {error.strerror or error}"
            raise self._lost(text, _REMEDY, is_written=is_sent) from None
        except FrameError as error:
            raise self._senseless(verb, error) from None
        except BaseException:
            self.close()
            raise
        return bytes(outcome)

    def _connected(self) -> socket.socket:
        """Return a connection on which nothing is under way. Raises BackendError: nothing was asked."""
        if self._socket is not None and is_closed(self._socket):
            self.close()
        if self._socket is not None:
            return self._socket
        connection = new_socket()
        try:
            set_time_limit(connection, min(CONNECT_S, self._answer_s))
            with address_of(self._path) as address:
                connection.connect(address)
            connection.sendall(framed(pack((VERSION, self._port, self._client))))
            incarnation, notices = self._welcomed(receive_frame(connection))
            set_time_limit(connection, self._answer_s)
        except OSError as error:
            connection.close()
            raise self._unreached(error) from None
        except FrameError as error:
            connection.close()
            raise BackendError(f"the store process answers with what is none ({error})", retryable=False) from None
        except BaseException:
            connection.close()
            raise
        self._socket = connection
        if incarnation != self._incarnation:
            try:
                self._begun(notices)
            except BaseException:
                self.close()
                raise
        self._incarnation = incarnation
        return connection

    def _begun(self, notices: list[tuple[str, str]]) -> None:
        if self._on_notices is not None:
            self._on_notices(notices)
        if self._on_begin is not None:
            self._on_begin(self)

    def _welcomed(self, body: bytes) -> tuple[bytes, list[tuple[str, str]]]:
        """Raises ConflictError: this process and the store process are not of one hub."""
        answer: tuple[Any, ...] = ANSWER(unpack(body))
        welcome = read_outcome(answer[1], WELCOME)
        return data(welcome[1]), [(str(word), str(what)) for word, what in _NOTICES(welcome[2])]

    def _unreached(self, error: OSError) -> BackendError:
        if isinstance(error, BlockingIOError):
            return BackendError(f"the store process takes no connection at {self._path}", retryable=True, remedy=_SLOW)
        why = f"{AWAY}: it is not reached at {self._path} ({error.strerror or error})"
        return BackendError(why, retryable=True, remedy=_REMEDY)

    def _senseless(self, verb: str, error: FrameError) -> _LostError:
        return self._lost(
            f"the store process answered {self._port}.{verb} with what is none ({error})", is_written=True
        )

    def _lost(self, text: str, remedy: str = "", *, is_written: bool) -> _LostError:
        self.close()
        return _LostError(text, retryable=True, is_written=is_written, remedy=remedy)


class _LostError(BackendError):
    """The connection was lost, or the answer makes no sense: another connection may have a better one."""
