"""Log lines: one line, no secret, nothing of a client's text that a terminal would obey."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from iothub.base import log, log_level


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.getLogger("iothub").setLevel(logging.NOTSET)
    log.begin()


def lines(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_line_is_one_json_object_with_time_and_level() -> None:
    out = io.StringIO()
    log.configure(stream=out, wall=lambda: 0.25)

    log.get("iothub.net").info("connection closed", tenant="acme", reason="client")

    assert lines(out) == [
        {
            "event": "connection closed",
            "level": "info",
            "time": "1970-01-01T00:00:00.250Z",
            "source": "iothub.net",
            "tenant": "acme",
            "reason": "client",
        }
    ]


def test_less_important_lines_are_left_out() -> None:
    out = io.StringIO()
    log.configure(level="warning", stream=out)

    log.get("x").info("connection closed")

    assert out.getvalue() == ""


def test_secrets_are_blanked_at_any_depth() -> None:
    """Planted secrets do not reach the log."""
    out = io.StringIO()
    log.configure(stream=out)

    log.get("x").warning("login failed", password="s3cret", request={"api_token": "s3cret", "name": "a"})

    assert "s3cret" not in out.getvalue()
    assert lines(out)[0]["request"] == {"api_token": "***", "name": "a"}


@pytest.mark.parametrize("form", ["json", "text"])
def test_names_of_a_mapping_may_be_numbers(form: str) -> None:
    """A line that cannot be written would end the work that says it: bytes by node, for example."""
    out = io.StringIO()
    log.configure(form=form, stream=out)

    log.get("x").error("beginning again", dropped_bytes={2: 300})

    assert "300" in out.getvalue()


@pytest.mark.parametrize("form", ["json", "text"])
@pytest.mark.parametrize("hostile", ["a\nb", "a\x1b[31mb", "a\rb", "a\x00b", "a\u2028b", "a\u202eb", b"a\nb"])
def test_hostile_text_stays_on_its_line(form: str, hostile: object) -> None:
    """Newline and ANSI in client strings are neutralised."""
    out = io.StringIO()
    log.configure(form=form, stream=out)

    log.get("x").info("connect refused", client_id=hostile)

    text = out.getvalue()
    assert text.count("\n") == 1
    assert len(text.splitlines()) == 1
    assert "\x1b" not in text


def test_long_text_is_cut() -> None:
    out = io.StringIO()
    log.configure(stream=out)

    log.get("x").info("topic refused", topic="a" * 65_535)

    assert len(out.getvalue()) < 1024
    assert "(65535 characters)" in out.getvalue()


def test_sentence_that_repeats_is_counted_instead_of_written() -> None:
    out = io.StringIO()
    now = [0.0]
    limit = log.RateLimit(2, 10.0, lambda: now[0])
    log.configure(stream=out, rate=None)
    structlog.configure(processors=[limit, *structlog.get_config()["processors"]])

    for _ in range(5):
        log.get("x").warning("login failed")
    log.get("x").warning("other sentence")
    now[0] = 10.0
    log.get("x").warning("login failed")

    assert [line.get("suppressed") for line in lines(out)] == [None, None, None, 3]
    assert limit.suppressed == 3


def test_errors_are_never_left_out() -> None:
    out = io.StringIO()
    log.configure(stream=out, rate=(1, 10.0))

    for _ in range(3):
        log.get("x").error("defect")

    assert len(lines(out)) == 3


def test_exception_is_one_line_with_its_place() -> None:
    """Never a traceback over many lines, yet enough to find the defect."""
    out = io.StringIO()
    log.configure(stream=out)
    try:
        int("x")
    except ValueError:
        log.get("x").exception("unexpected error")

    line = lines(out)[0]
    assert line["error_kind"] == "ValueError"
    assert str(line["at"]).startswith("test_log.py:")
    assert "Traceback" not in out.getvalue()


def test_library_messages_become_lines() -> None:
    out = io.StringIO()
    log.configure(stream=out)

    logging.getLogger("sqlalchemy.pool").warning("pool %s\nempty", "one")
    logging.getLogger("alembic").info("chatter")

    assert [line["text"] for line in lines(out)] == ["pool one\\nempty"]


def test_messages_of_our_own_modules_keep_their_sentence_and_fields() -> None:
    """Message plane and sockets log with `logging`; what they say is no library's message."""
    out = io.StringIO()
    log.configure(level="debug", stream=out)

    logging.getLogger("iothub.net.acceptor").debug("connection refused", extra={"listener": "tls", "reason": "banned"})

    (line,) = lines(out)
    assert {name: line[name] for name in ("event", "level", "source", "listener", "reason")} == {
        "event": "connection refused",
        "level": "debug",
        "source": "iothub.net.acceptor",
        "listener": "tls",
        "reason": "banned",
    }


@pytest.mark.parametrize(
    ("is_debug", "written"), [(False, ["a defect"]), (True, ["a gateway", "a library", "a defect"])]
)
def test_command_writes_defects_only(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], is_debug: bool, written: list[str]
) -> None:
    """It says by itself what fails, between lines that are meant for people; `--debug` shows the rest."""
    monkeypatch.setattr(log_level, "is_command", True)
    monkeypatch.setattr(log_level, "is_debug", is_debug)
    log.begin()

    log.get("iothub_services.hbase.client").warning("a gateway does not answer")
    logging.getLogger("urllib3").warning("a library retries")
    log.get("x").error("a defect")

    said = capsys.readouterr()
    assert [word for word in ("a gateway", "a library", "a defect") if word in said.err] == written
    assert said.out == ""


def test_text_form_is_for_people() -> None:
    out = io.StringIO()
    log.configure(form="text", stream=out, wall=lambda: 0.0)

    log.get("x").info("hub is ready", address="127.0.0.1:1883", note="two words")

    expected = "1970-01-01T00:00:00.000Z info    hub is ready  source=x address=127.0.0.1:1883 note='two words'\n"
    assert out.getvalue() == expected


def test_lost_reader_does_not_stop_the_hub() -> None:
    out = io.StringIO()
    log.configure(stream=out)
    logger = log.get("x")
    out.close()

    logger.error("nobody reads this")


def test_lines_of_a_command_leave_its_standard_output_alone(capsys: pytest.CaptureFixture[str]) -> None:
    """`-o json` is for programs; nobody has configured anything yet."""
    log.begin()

    log.get("here").error("a queue is left out", why="damaged")

    said = capsys.readouterr()
    assert said.out == ""
    assert "a queue is left out" in said.err


def test_module_with_a_limit_of_its_own_is_not_limited_again() -> None:
    out = io.StringIO()
    log.configure(stream=out, rate=(2, 10.0))
    own, other = log.get("own", has_own_limit=True), log.get("other")

    for _ in range(5):
        own.info("client connected")
        other.info("something else")

    events = [line["event"] for line in lines(out)]
    assert (events.count("client connected"), events.count("something else")) == (5, 2)
