"""`iothub.cli.entry`: the process of a command writes its own sentences, and log lines only when it is asked for them."""

from __future__ import annotations

import logging
import signal
import sys
from collections.abc import Iterator, Sequence

import pytest

from iothub.base import log, log_level
from iothub.cli import entry


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level, interrupt = list(root.handlers), root.level, signal.getsignal(signal.SIGINT)
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.getLogger("iothub").setLevel(logging.NOTSET)
    signal.signal(signal.SIGINT, interrupt)
    log_level.is_command = log_level.is_debug = False
    log.begin()


@pytest.mark.parametrize(("options", "is_logged"), [([], False), (["--debug"], True)])
def test_log_lines_of_a_command_are_shown_with_debug_only(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], options: list[str], is_logged: bool
) -> None:
    """A gateway that does not answer is in the command's own error, or does not matter because another one answers."""

    def run(_arguments: Sequence[str]) -> int:
        log.begin()  # as when it is loaded now
        log.get("iothub_services.hbase.client").warning("a gateway of HBase does not answer")
        return 7

    monkeypatch.setattr("iothub.cli.main.run", run)
    monkeypatch.setattr(sys, "argv", ["iothub", *options, "hbase", "status"])

    with pytest.raises(SystemExit) as caught:
        entry.main()

    assert caught.value.code == 7
    assert ("does not answer" in capsys.readouterr().err) is is_logged
