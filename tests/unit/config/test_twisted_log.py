"""Twisted's log events become lines of ours: failures as one error line, chatter only at debug level."""

from __future__ import annotations

from structlog.testing import capture_logs
from twisted.logger import LogLevel
from twisted.python.failure import Failure

from iothub.hub.twisted_log import Observer


def test_failure_is_one_error_with_its_kind() -> None:
    try:
        int("x")
    except ValueError:
        failure = Failure()
    with capture_logs() as lines:
        Observer()({"log_failure": failure, "log_format": "Unhandled\nerror", "log_level": LogLevel.critical})

    (line,) = lines
    assert (line["log_level"], line["event"], line["text"]) == ("error", "unexpected error", "Unhandled error")
    assert isinstance(line["exc_info"], ValueError)


def test_chatter_is_written_at_debug_level() -> None:
    with capture_logs() as lines:
        Observer()({"log_format": "Starting factory {name}", "name": "x", "log_level": LogLevel.info})
        Observer()({"log_format": "careful", "log_level": LogLevel.warn})

    assert [(line["log_level"], line["text"]) for line in lines] == [
        ("debug", "Starting factory x"),
        ("warning", "careful"),
    ]
