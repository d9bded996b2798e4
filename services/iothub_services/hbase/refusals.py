"""What a refusal of HBase means: may the same call succeed later, and has something been written for certain not?

Knows no call and no connection. The gateway passes on Java's stack traces; what counts in them are the names of the classes at the
places where Java prints one, never a name within a message, which a client may have chosen.

Theory: three kinds of class. *Nothing was done* and it will pass by itself (a region on its way, a server too busy). *Nothing was done*
and it never will be (no such table, our coprocessor's refusal). Everything else - time-outs, lost connections, names that nobody
foresaw - may have been done: a gateway tries several times, and one attempt that was only late is enough. `DoNotRetryIOException`
is both: thrown by a region server it comes with its name twice and is a refusal; thrown by the gateway itself it is how that
reports that ZooKeeper did not answer.
"""

from __future__ import annotations

import re
from enum import Enum

from iothub.base.errors import BackendError
from iothub.records.layout import CREATE_TABLES

NO_TABLE = "TableNotFoundException"
PASSING = frozenset(
    (
        "CallDroppedException",
        "CallQueueTooBigException",
        "ConnectException",
        "FailedServerException",
        "LeaseException",
        "MasterNotRunningException",
        "MasterStoppedException",
        "NoRouteToHostException",
        "NoServerForRegionException",
        "NotAllMetaRegionsOnlineException",
        "NotServingRegionException",
        "OutOfOrderScannerNextException",
        "PleaseHoldException",
        "RegionInRecoveryException",
        "RegionMovedException",
        "RegionOfflineException",
        "RegionOpeningException",
        "RegionTooBusyException",
        "RpcThrottlingException",
        "ScannerResetException",
        "ServerNotRunningYetException",
        "ServerOverloadedException",
        "ServerTooBusyException",
        "UnknownHostException",
        "UnknownScannerException",
        "WrongRegionException",
    )
)
"""Nothing was done; the same call may succeed later."""

FINAL = frozenset(
    (
        "AccessDeniedException",
        "FailedSanityCheckException",
        "IllegalArgumentException",
        "InvalidFamilyOperationException",
        "NamespaceExistException",
        "NamespaceNotFoundException",
        "NoSuchColumnFamilyException",
        "SpaceLimitingException",
        "TableExistsException",
        "TableNotDisabledException",
        "TableNotEnabledException",
        NO_TABLE,
    )
)
"""Nothing was done, and asking again changes nothing."""

_REFUSAL = "DoNotRetryIOException"
_WRAPPERS = frozenset(
    (
        "ExecutionException",
        "RemoteException",
        "RemoteWithExtrasException",
        "RetriesExhaustedException",
        "RetriesExhaustedWithDetailsException",
        "ServiceException",
        "UndeclaredThrowableException",
    )
)

_CLASS = rb"(?:[a-z]\w*\.)*([A-Z]\w*(?:Exception|Error))"
_NAMED = re.compile(
    rb"(?:Caused by: |\S+Z, RpcRetryingCaller\{[^}]*\}, )?"
    + _CLASS
    + rb"(?=[:(\s]|$)(?:: Failed \d+ actions?: "
    + _CLASS
    + rb")?"
)
_TWICE = re.compile(rb"(?:[a-z]\w*\.)*([A-Z]\w*): (?:[a-z]\w*\.)*\1(?=[:\s]|$)(?:: )?")
_PREFIX = re.compile(rb"(?:(?:[a-z]\w*\.)+[A-Z]\w*(?:: |$))+")
_TEXT_LIMIT = 300
_LINES = 64


class Effect(Enum):
    """What a call does to the tables, and so what may be left of one that failed."""

    NONE = "reads"
    ROW = "writes all or nothing"
    ROWS = "may be left half done"


class LostError(BackendError):
    """A call's gateway fell silent, or its connection was lost, before there was an answer: another gateway may give one.

    Or it is a call to a scanner that went with its connection: it was not sent, the scanner is to be opened anew.
    """


class HBaseError(BackendError):
    """HBase answered, with a refusal. `java_class`: the simple name that decided; `text`: what the server said, without class names."""

    def __init__(self, message: str, *, retryable: bool, is_written: bool, java_class: str, text: str) -> None:
        super().__init__(message, retryable=retryable, is_written=is_written)
        self.java_class = java_class
        self.text = text


def refusal(verb: str, effect: Effect, sent: bytes, can_retry: bool | None) -> HBaseError:
    """Return the error for an `IOError` that the gateway sent: its text, and its own opinion if it has one."""
    lines = [line for line in sent.split(b"\n", _LINES * 8) if line and not line.startswith(b"\tat ")][:_LINES]
    by_class = {
        name.decode(): line[match.end() :].lstrip(b": ")
        for line in reversed(lines)
        if (match := _NAMED.match(line))
        for name in match.groups()
        if name
    }
    names = list(reversed(by_class))
    deciding = _deciding(names, sent)
    is_done_for_certain_not = deciding in PASSING or deciding in FINAL or (deciding == _REFUSAL and _is_servers(sent))
    is_retryable = deciding in PASSING or not (
        deciding in FINAL or is_done_for_certain_not or _is_final(deciding, can_retry)
    )
    is_written = effect is Effect.ROWS or (effect is Effect.ROW and not is_done_for_certain_not)
    text = _said(by_class.get(deciding, sent))
    return _error(verb, deciding or "an error", text, is_retryable=is_retryable, is_written=is_written)


def illegal_argument(verb: str, effect: Effect, sent: bytes) -> HBaseError:
    """Return the error for an `IllegalArgument`: refused by the gateway itself. A scanner that has gone can be opened anew."""
    is_scanner = sent.startswith(b"scanner ID")
    is_written = effect is Effect.ROWS  # a batch is checked row by row
    return _error(verb, "IllegalArgument", _said(sent), is_retryable=is_scanner, is_written=is_written)


def already_exists(verb: str, sent: bytes) -> HBaseError:
    """Return the error for an `AlreadyExists`."""
    return _error(verb, "AlreadyExists", _said(sent), is_retryable=False, is_written=False)


def failure(verb: str, effect: Effect, sent: bytes, kind: int) -> HBaseError:
    """Return the error for an exception of Thrift itself: a verb that the gateway does not know, or a defect in it."""
    is_unknown = kind == 1
    is_written = effect is not Effect.NONE and not is_unknown
    return _error(verb, "TApplicationException", _said(sent), is_retryable=False, is_written=is_written)


def _deciding(names: list[str], sent: bytes) -> str:
    """Return the class that says most: the first that may have done something, else the first that is no wrapper."""
    inner = [name for name in names if name not in _WRAPPERS]
    harmless = PASSING | FINAL | ({_REFUSAL} if _is_servers(sent) else set())
    return next((name for name in inner if name not in harmless), next(iter(inner), next(iter(names), "")))


def _is_servers(sent: bytes) -> bool:
    """A region server's exception has its name twice: as what was sent, and as what it was made into."""
    return _TWICE.match(sent) is not None


def _is_final(deciding: str, can_retry: bool | None) -> bool:
    """A gateway that says "do not retry" of a class of its own knows better than we; its plain DoNotRetryIOException does not."""
    return can_retry is False and deciding != _REFUSAL


def _said(sent: bytes) -> str:
    """Return the first line without its class names, of bounded length."""
    words = _PREFIX.sub(b"", sent.partition(b"\n")[0], count=1).decode("utf-8", "replace").split()
    said = " ".join(words)
    return said if len(said) <= _TEXT_LIMIT else said[: _TEXT_LIMIT - 4] + " ..."


def _error(verb: str, java_class: str, text: str, *, is_retryable: bool, is_written: bool) -> HBaseError:
    remedy = f"; {CREATE_TABLES}" if java_class == NO_TABLE else ""
    message = f"HBase refused {verb}: {java_class}" + (f": {text}" if text else "") + remedy
    return HBaseError(message, retryable=is_retryable, is_written=is_written, java_class=java_class, text=text)
