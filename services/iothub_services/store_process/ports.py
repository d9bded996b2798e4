"""A port of the store process, on its side: the verbs of one store, those that write merged into one commit for whatever waits.

Knows no socket. Any number of threads ask; one thread writes (`iothub_services.group_thread`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from typing import Any, Protocol

from iothub.base import log as logging
from iothub.base.clock import Clock
from iothub.base.errors import BackendError, IotHubError
from iothub_services.group_thread import GroupThread
from iothub_services.queues.port import StaleEpochError
from iothub_services.store_process.frames import FrameError, data, maybe, number, pack, pack_error
from iothub_services.store_process.requests import KeptAnswer, Requests
from iothub_services.store_process.verbs import PROBE, RECALL, Verb, Verbs, read_args

log = logging.get(__name__)

_PROBE = Verb((), lambda value: value, is_write=True)
_RECALL = Verb((number,), maybe(data), is_write=True)


class Answering(Protocol):
    """What the server has for each port."""

    def begin(self) -> Session:
        """A connection begins."""

    def take(
        self, session: Session, client: bytes, asked: int, verb: str, args: tuple[object, ...]
    ) -> Callable[[], bytes]:
        """Take one request, behind all that were taken before; return what waits for the answer. Raises FrameError: it is none."""

    def close(self) -> bool:
        """Do what was asked, and end. False: it still runs."""


@dataclass(slots=True)
class Session:
    """One connection. `seen`: up to which change it knows what the port says besides its answers. `reusable_bytes`: as of the last notes."""

    seen: int = 0
    reusable_bytes: int = 0


class Probed(Protocol):
    """A store that says whether it takes writes."""

    def probe(self) -> None: ...


class Store(Probed, Protocol):
    """A store that writes in groups."""

    def group(self) -> AbstractContextManager[None]: ...


@dataclass(frozen=True, slots=True)
class _Op:
    """A request of a verb that writes."""

    client: bytes
    asked: int
    name: str
    verb: Verb
    args: list[Any]


class Port:
    """Fulfils `Answering`.

    Invariants: what a request that failed has left behind is nothing, unless its answer says that this is not certain. An answer that is kept is
    of the same commit as what it answers.
    """

    def __init__(
        self,
        name: str,
        verbs: Verbs,
        store: Store,
        clock: Clock,
        *,
        calls: Mapping[str, Callable[..., object]] | None = None,
        requests: Requests | None = None,
    ) -> None:
        """`calls`: what does a verb, where the store has no method of its name. `requests`: where kept answers are."""
        self.name = name
        self._verbs = {**verbs, PROBE: _PROBE, RECALL: _RECALL}
        self._store = store
        self._calls = {verb: getattr(store, verb) for verb in verbs if verb not in (calls or ())} | dict(calls or {})
        self._requests = requests
        self._submitting = threading.Lock()
        self._thread: GroupThread[_Op, bytes] = GroupThread(
            name, self._do, _at_once, clock, idle=getattr(store, "idle", None), on_alarm=self._on_alarm
        )
        self._thread.start()

    @property
    def commits(self) -> int:
        return self._thread.commits

    @property
    def waiting(self) -> int:
        """Requests without an answer, those in the commit that runs included."""
        return self._thread.waiting

    def begin(self) -> Session:
        return Session()

    def take(
        self, session: Session, client: bytes, asked: int, verb: str, args: tuple[object, ...]
    ) -> Callable[[], bytes]:
        known = self._verbs.get(verb)
        if known is None:
            raise FrameError(f"no verb {self.name}.{verb[:100]}")
        values = read_args(known, args)
        wait = (
            self._submit(_Op(client, asked, verb, known, values))
            if known.is_write
            else partial(self._read, verb, values)
        )
        return lambda: pack((asked, wait(), self.notes(session)))

    def notes(self, session: Session) -> object:
        """Return what else this connection must know."""
        del session
        return None

    def close(self) -> bool:
        """Write what was asked for, and end the thread. False: it still runs, and the store must be left open."""
        return self._thread.close()

    def _read(self, verb: str, values: list[Any]) -> bytes:
        try:
            return _done(self._calls[verb](*values))
        except Exception as error:  # edge: whatever it is, the caller hears of it
            return _failed(error)

    def _submit(self, op: _Op) -> Callable[[], bytes]:
        """Have it done with whatever else waits."""
        answers: SimpleQueue[bytes | Exception] = SimpleQueue()
        try:
            with self._submitting:
                self._thread.submit(op, answers.put)
        except BackendError:
            answers.put(BackendError("the store process is ending", retryable=True))

        def wait() -> bytes:
            answer = answers.get()
            return _failed(answer) if isinstance(answer, Exception) else answer

        return wait

    # --- in the thread that writes

    def _do(self, ops: list[_Op]) -> list[bytes | Exception]:
        answers: list[bytes | Exception] = [self._probe() if op.name == PROBE else b"" for op in ops]
        with self._store.group():
            kept: list[KeptAnswer] = []
            for index, op in enumerate(ops):
                if op.name != PROBE:
                    answers[index] = answer = self._do_one(op)
                    if op.verb.is_kept:
                        kept.append(KeptAnswer(op.client, op.asked, answer))
            if kept and self._requests is not None:
                self._requests.keep(kept)
        return answers

    def _do_one(self, op: _Op) -> bytes:
        """Do a verb. A refusal is an answer; a store that fails fails all that is in the commit."""
        if op.name == RECALL:
            return _done(self._requests and self._requests.find(op.client, *op.args))
        try:
            return _done(self._calls[op.name](*op.args))
        except BackendError:
            raise
        except (IotHubError, StaleEpochError) as error:
            return _failed(error)

    def _probe(self) -> bytes:
        """Probe outside the group: that the disk has little room must not fail what others write."""
        try:
            self._store.probe()
        except BackendError as error:
            return _failed(error)
        return _done(None)

    def _on_alarm(self, _word: str, text: str) -> None:
        if text:
            log.warning("store fails", store=self.name, cause=text)
        else:
            log.info("store works again", store=self.name)


class CallPort:
    """Fulfils `Answering` for verbs that write no file: each is called in the thread of its connection.

    `is_single`: they are called one after the other.
    """

    def __init__(self, name: str, verbs: Verbs, calls: Mapping[str, Callable[..., object]], *, is_single: bool) -> None:
        self.name = name
        self._verbs = verbs
        self._calls = calls
        self._lock: AbstractContextManager[object] = threading.Lock() if is_single else nullcontext()

    def begin(self) -> Session:
        return Session()

    def take(
        self, session: Session, client: bytes, asked: int, verb: str, args: tuple[object, ...]
    ) -> Callable[[], bytes]:
        del session, client
        known = self._verbs.get(verb)
        if known is None:
            raise FrameError(f"no verb {self.name}.{verb[:100]}")
        call, values = self._calls[verb], read_args(known, args)

        def answer() -> bytes:
            try:
                with self._lock:
                    outcome = _done(call(*values))
            except Exception as error:  # edge: whatever it is, the caller hears of it
                outcome = _failed(error)
            return pack((asked, outcome, None))

        return answer

    def close(self) -> bool:
        return True


def _at_once(call: Callable[[], None]) -> None:
    call()


def _done(value: Any) -> bytes:
    return pack((True, value))


def _failed(error: Exception) -> bytes:
    return pack((False, pack_error(error)))
