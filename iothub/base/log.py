"""Logging: constant sentences plus fields, one line each, on standard error.

Knows no subject. What a client chose (names, topics) may stand in fields: control characters are escaped, long values
are cut, fields whose name sounds like a secret are blanked. A sentence that repeats too fast is counted, not written.
"""

from __future__ import annotations

import contextlib
import logging
import re
import sys
import time
from collections.abc import Callable, Mapping, MutableMapping
from types import TracebackType
from typing import TextIO, TypeAlias, cast

import structlog

from iothub.base import log_level
from iothub.base.text import clean

Fields: TypeAlias = MutableMapping[str, object]
LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}
_SECRET_FIELD = re.compile(r"pass|secret|token|pepper|credential|private|authorization|cookie", re.IGNORECASE)
_SENTENCES_LIMIT = 1024  # sentences are constants of the program, so this bounds only mistakes
_BLANKED = "***"
_OURS = "iothub"
_RECORD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}  # what a record has beside its `extra`
_current: RateLimit | None = None
_suppressed_before = 0  # by limits that `configure` has replaced
_limited_by_themselves: set[str] = set()  # names of modules
_process: Fields = {}  # which of several processes writes


class RateLimit:
    """At most `count` of one sentence in `seconds`; the first one of the next window says how many were left out.

    Invariants: errors are never left out, nor lines of modules that limit their rate by themselves.
    """

    def __init__(self, count: int, seconds: float, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._count = count
        self._seconds = seconds
        self._monotonic = monotonic
        self._windows: dict[str, list[float]] = {}  # sentence -> [start of window, seen in it]
        self.suppressed = 0  # since the start, for the metric

    def __call__(self, _logger: object, method: str, fields: Fields) -> Fields:
        sentence = str(fields.get("event", ""))
        if method in {"error", "critical"} or fields.get("source") in _limited_by_themselves:
            return fields
        now = self._monotonic()
        window = self._windows.get(sentence)
        if window is None or now - window[0] >= self._seconds:
            self._begin(sentence, window, now, fields)
            return fields
        window[1] += 1
        if window[1] > self._count:
            self.suppressed += 1
            raise structlog.DropEvent
        return fields

    def _begin(self, sentence: str, window: list[float] | None, now: float, fields: Fields) -> None:
        if window is not None and window[1] > self._count:
            fields["suppressed"] = int(window[1]) - self._count
        if len(self._windows) >= _SENTENCES_LIMIT:
            self._windows.clear()
        self._windows[sentence] = [now, 1]


def get(name: str, *, has_own_limit: bool = False) -> structlog.typing.FilteringBoundLogger:
    """Return the logger of one module; `name` stands in every line as `source`. `has_own_limit`: the module limits the rate of its lines."""
    if has_own_limit:
        _limited_by_themselves.add(name)
    logger: structlog.typing.FilteringBoundLogger = structlog.get_logger(source=name)
    return logger


def name_process(name: str) -> None:
    """Let each line of this process have its name, from the next `configure` on: several write to the same stream."""
    _process["process"] = name


def begin() -> None:
    """Send lines to standard error until `configure` says more: what a command prints for programs must hold nothing else."""
    structlog.reset_defaults()
    structlog.configure(logger_factory=_standard_error)
    if log_level.is_command:
        level = LEVELS["debug" if log_level.is_debug else "error"]
        structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(level))
        _bridge_standard_logging(level)


def configure(
    *,
    level: str = "info",
    form: str = "auto",
    rate: tuple[int, float] | None = (100, 10.0),
    stream: TextIO | None = None,
    wall: Callable[[], float] = time.time,
) -> None:
    """Send all log lines to `stream` (standard error), from now on; also while a hub runs.

    Args:
        level: The least level that is written: debug, info, warning or error.
        form: `json`, `text`, or `auto`: text when the stream is a terminal.
        rate: (count, seconds) of one sentence, or None.
        stream: Where to.
        wall: Unix time, in seconds.
    """
    out = stream if stream is not None else sys.stderr
    is_text = form == "text" or (form == "auto" and out.isatty())
    global _current, _suppressed_before
    _suppressed_before = suppressed()
    _current = limit = RateLimit(*rate) if rate is not None else None
    processors: list[structlog.typing.Processor] = [] if limit is None else [limit]
    if _process:
        processors.append(_add_process)
    processors += [structlog.processors.add_log_level, _Stamp(wall), explain_exception, blank_secrets, neutralise]
    processors.append(render_text if is_text else structlog.processors.JSONRenderer(default=str))
    structlog.configure(
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        logger_factory=structlog.WriteLoggerFactory(file=cast("TextIO", _Patient(out))),
        cache_logger_on_first_use=False,
    )
    _bridge_standard_logging(LEVELS[level])


def suppressed() -> int:
    """Return how many lines the rate limit has left out, for the metric."""
    return _suppressed_before + (_current.suppressed if _current is not None else 0)


def blank_secrets(_logger: object, _method: str, fields: Fields) -> Fields:
    """Blank every field whose name sounds like a secret, at any depth."""
    for name, value in fields.items():
        if _SECRET_FIELD.search(str(name)):  # of a mapping it may be a number
            fields[name] = _BLANKED
        elif isinstance(value, Mapping):
            fields[name] = blank_secrets(None, "", dict(value))
    return fields


def neutralise(_logger: object, _method: str, fields: Fields) -> Fields:
    """Escape what could end a line or drive a terminal, and cut what is long, in values: sentences are constants."""
    for name, value in fields.items():
        if isinstance(value, bytes):
            fields[name] = clean(value.decode("utf-8", "backslashreplace"))
        elif isinstance(value, str):
            fields[name] = clean(value)
    return fields


def _add_process(_logger: object, _method: str, fields: Fields) -> Fields:
    fields.update(_process)
    return fields


def explain_exception(_logger: object, _method: str, fields: Fields) -> Fields:
    """Turn `exc_info` into fields: kind, text and the innermost place; never a traceback over many lines."""
    given = fields.pop("exc_info", None)
    error = sys.exc_info()[1] if given is True else given[1] if isinstance(given, tuple) else given
    if isinstance(error, BaseException):
        fields["error_kind"] = type(error).__name__
        fields["error"] = str(error)
        fields["at"] = _places(error.__traceback__)
    return fields


def render_text(_logger: object, _method: str, fields: Fields) -> str:
    """Write `time level sentence  name=value ...` for people."""
    stamp, level, sentence = (fields.pop(name, "") for name in ("time", "level", "event"))
    rest = " ".join(f"{name}={_shown(value)}" for name, value in fields.items())
    return f"{stamp} {level:<7} {sentence}{'  ' if rest else ''}{rest}"


class _Stamp:
    """Add the time in UTC, in milliseconds."""

    def __init__(self, wall: Callable[[], float]) -> None:
        self._wall = wall

    def __call__(self, _logger: object, _method: str, fields: Fields) -> Fields:
        now = self._wall()
        whole = int(now)
        fields["time"] = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(whole)) + f".{int((now - whole) * 1000):03d}Z"
        return fields


class _Patient:
    """A stream whose reader may be gone or whose disk may be full: the hub serves on without its log."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except (OSError, ValueError):
            return 0

    def flush(self) -> None:
        try:
            self._stream.flush()
        except (OSError, ValueError):
            return


class _StandardHandler(logging.Handler):
    """What is logged with `logging` becomes a line like ours: by libraries, and by our modules that must not load structlog."""

    def emit(self, record: logging.LogRecord) -> None:
        logger = get(record.name)
        error = record.exc_info[1] if record.exc_info else None
        with contextlib.suppress(Exception):  # a bad log call of a library must not reach its caller
            if record.name.partition(".")[0] == _OURS:
                fields = {name: value for name, value in vars(record).items() if name not in _RECORD}
                logger.log(record.levelno, record.getMessage(), exc_info=error, **fields)
            else:
                logger.log(record.levelno, "library message", text=record.getMessage(), exc_info=error)


def _standard_error(*_: object) -> structlog.PrintLogger:
    """Look for it each time: tests exchange it."""
    return structlog.PrintLogger(sys.stderr)


def _bridge_standard_logging(level: int) -> None:
    """`level`: of our own modules; libraries write warnings and worse."""
    root = logging.getLogger()
    for handler in [handler for handler in root.handlers if isinstance(handler, _StandardHandler)]:
        root.removeHandler(handler)
    root.addHandler(_StandardHandler())
    root.setLevel(logging.WARNING)
    logging.getLogger(_OURS).setLevel(level)


def _places(traceback: TracebackType | None) -> str:
    """Return the innermost three places, as `file:line`, innermost first."""
    places: list[str] = []
    while traceback is not None:
        code = traceback.tb_frame.f_code
        places.append(f"{code.co_filename.rpartition('/')[2]}:{traceback.tb_lineno}")
        traceback = traceback.tb_next
    return " < ".join(reversed(places[-3:]))


def _shown(value: object) -> str:
    text = str(value)
    return repr(text) if not text or any(mark in text for mark in ' "=') else text


begin()
