"""The quota ledger over the store process: its port there, and what a worker asks it with.

Knows no script: a call names one by its digest, which the ledger has (`iothub_services.quota.shared.embedded`) or refuses. Whether a call whose
answer was lost was done is not asked: the caller numbers its calls, and comes back under another name.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from iothub.base.errors import BackendError
from iothub_services.redis.calls import Argument, Call, Reply
from iothub_services.store_process.connection import StoreConnection
from iothub_services.store_process.frames import FrameError, array, pack, pack_error, several, text
from iothub_services.store_process.ports import Session
from iothub_services.store_process.verbs import Verb, read_args

PORT = "quota"
ANSWER_S = 2.0
_RUN = "run"


class Ledger(Protocol):
    """What answers there. One thread at a time."""

    def run(self, digest: str, keys: Sequence[str], arguments: Sequence[Argument]) -> Reply: ...


class LedgerPort:
    """Fulfils `iothub_services.store_process.ports.Answering`. Nothing of it waits for a disk."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._lock = threading.Lock()

    def begin(self) -> Session:
        return Session()

    def take(
        self, session: Session, client: bytes, asked: int, verb: str, args: tuple[object, ...]
    ) -> Callable[[], bytes]:
        """Raises FrameError."""
        del session, client
        if verb != _RUN:
            raise FrameError(f"the quota ledger has no verb {verb}")
        digest, keys, arguments = read_args(_VERBS[_RUN], args)
        try:
            with self._lock:
                outcome = pack((True, self._ledger.run(digest, keys, arguments)))  # type: ignore[arg-type]  # as read
        except BackendError as error:
            outcome = pack((False, pack_error(error)))
        answer = pack((asked, outcome, None))
        return lambda: answer

    def close(self) -> bool:
        return True


class StoreLedger:
    """A worker's connection to that port. Any thread may call it; the others wait."""

    def __init__(self, path: Path) -> None:
        self._connection = StoreConnection(path, PORT, _VERBS, answer_s=ANSWER_S)

    def run(self, call: Call) -> Reply:
        """Have a script run. Raises BackendError: nobody knows whether it was, or it was not."""
        if call.script is None:
            raise AssertionError("the ledger runs scripts alone")
        count, *arguments = call.arguments[2:]
        reply: Reply = self._connection.write(
            _RUN, call.script.digest, arguments[: int(count)], arguments[int(count) :]
        )
        return reply

    def close(self) -> None:
        self._connection.close()


def _argument(value: object) -> Argument:
    if type(value) in (str, bytes, int, float):
        return value  # type: ignore[return-value]  # one of these
    raise FrameError("not an argument of a script")


def _reply(value: object) -> Reply:
    if type(value) in (bytes, int):
        return value  # type: ignore[return-value]  # one of these
    return [_reply(part) for part in array(value)]


_VERBS = {_RUN: Verb((text, several(text), several(_argument)), _reply)}
