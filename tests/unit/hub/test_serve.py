"""What ends a hub's process from inside: another hub with its number, and the others that go on without it."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest
from click.testing import CliRunner
from structlog.testing import capture_logs
from twisted.internet.defer import succeed
from twisted.internet.task import Clock

from iothub.base.errors import ConflictError, ExpelledError
from iothub.base.reasons import Reason
from iothub.cli import serve as command
from iothub.config.sections import Config
from iothub.hub import hub_process, serve
from iothub.hub.hub_process import HubProcess
from iothub.hub.phase import BEGIN_AGAIN, BEGIN_AGAIN_DRAINING, Phase
from iothub.hub.stop import Stop
from iothub.hub.workers.service_manager import ServiceManager


class Reactor(Clock):
    """Runs what the test asks for, until it is stopped."""

    def __init__(self) -> None:
        super().__init__()
        self.is_stopped = False
        self.running: list[Any] = []

    def callWhenRunning(self, call: Any, *given: object) -> None:
        self.running.append(partial(call, *given))

    def run(self, **_options: object) -> None:
        for call in self.running:
            call()
        for _ in range(100):
            if self.is_stopped:
                return
            self.advance(0.1)
        raise AssertionError("the reactor was not stopped")

    def stop(self) -> None:
        self.is_stopped = True


class Process:
    """A hub process whose parts note what is asked of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.done: list[str] = []
        self.bound: list[Any] = []
        self.reactor, self.phase = Reactor(), Phase()
        some, note = SimpleNamespace, self.done.append
        stop = some(
            expel=lambda: note("expelled"), close=lambda: note("closed"), run=self._stop, run_unstarted=self._stop
        )
        for name, made in (
            ("Stop", lambda *_: stop),
            ("Start", lambda *_: some(run=lambda: succeed(None))),
            ("OpenSockets", lambda *_: None),
            ("Reloader", lambda *_: some(signalled=None)),
            ("BackupHold", lambda *_: None),
            ("ClusterMembers", lambda *_: None),
            ("answers", lambda *_: None),
        ):
            monkeypatch.setattr(hub_process, name, made)
        monkeypatch.setattr(HubProcess, "_take_signals", lambda _self: None)
        monkeypatch.setattr(HubProcess, "_begin", lambda _self: None)
        parts = some(
            process=some(
                reactor=self.reactor,
                phase=self.phase,
                data_dir=some(remove_hub=lambda: note("hub.json")),
                settings=some(http=None),
                threads=some(run=None, start=lambda: None),
                pause=None,
                waiting=some(end=lambda: None),
            ),
            stores=some(commits=None, drivers=some(commits=lambda own: own)),
            sockets=some(brief=None, verbs=None),
            control=some(
                on_replaced=some(bind=self.bound.append),
                links=some(status=lambda: [some(peer=some(node=2), unacknowledged_bytes=300)]),
            ),
            writers=some(writer=some(start=lambda: None)),
        )
        self.hub = HubProcess(cast("Any", parts), lambda _text: None, cast("Any", None), ServiceManager())

    def end_with(self, *errors: Exception) -> int:
        for error in errors:
            self.reactor.callLater(0.5, self.bound[0], error)
        return self.hub.run()

    async def _stop(self, **_how: object) -> None:
        self.done.append("stopped")


def test_hub_that_is_gone_begins_again_without_an_orderly_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its sessions are its successor's: nothing is written for them, nothing is waited for. It says what no other hub has acknowledged."""
    process = Process(monkeypatch)

    with capture_logs() as lines:
        code = process.end_with(ExpelledError("the others go on"), ExpelledError("and say so again"))

    assert [line["dropped_bytes"] for line in lines] == [{2: 300}]
    assert (code, process.done) == (BEGIN_AGAIN, ["expelled", "hub.json"])
    assert process.phase.is_stopping
    assert not process.phase.is_ready


def test_hub_that_is_gone_while_it_drains_begins_again_with_that(monkeypatch: pytest.MonkeyPatch) -> None:
    process = Process(monkeypatch)
    process.phase.begin_drain()

    assert process.end_with(ExpelledError("the others go on")) == BEGIN_AGAIN_DRAINING


def test_hub_that_is_replaced_stops_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    process = Process(monkeypatch)

    with pytest.raises(ConflictError, match="taken"):
        process.end_with(ConflictError("taken"))

    assert process.done == ["stopped", "closed"]


def test_expelled_hub_closes_its_clients_and_links_and_nothing_else() -> None:
    """5.0 clients get 0x8B; sessions without a client stay as they are."""
    closed: list[object] = []
    some = SimpleNamespace
    sessions = {"a": some(connection="of a"), "b": some(connection=None)}
    control = some(
        plane=some(close=lambda connection, reason: closed.append((connection, reason))),
        hub=some(brokers=[some(plane=some(sessions=some(awake=sessions)))]),
        links=some(close=lambda: closed.append("links")),
    )
    sockets = some(stop_accepting=lambda: closed.append("sockets"))

    Stop(cast("Any", some(control=control)), cast("Any", sockets)).expel()

    assert closed == ["sockets", ("of a", Reason.EXPELLED), "links"]
    assert Reason.EXPELLED.code == 0x8B


@pytest.mark.parametrize(
    ("code", "before", "after"),
    [
        (BEGIN_AGAIN, [], []),
        (BEGIN_AGAIN, ["--draining"], []),
        (BEGIN_AGAIN_DRAINING, [], ["--draining"]),
        (BEGIN_AGAIN_DRAINING, ["--draining"], ["--draining"]),
    ],
)
def test_command_replaces_its_process_when_the_hub_begins_again(
    monkeypatch: pytest.MonkeyPatch, code: int, before: list[str], after: list[str]
) -> None:
    """With the command line that it has, and draining if it drained at its end."""
    replaced: list[list[str]] = []
    app = SimpleNamespace(
        load_checked=lambda _flags: SimpleNamespace(loaded=SimpleNamespace(config=Config()), warnings=[]),
        require_initialised=lambda _config: None,
        data_dir=SimpleNamespace(path="hub"),
        config_file=None,
    )
    monkeypatch.setattr(serve, "serve", lambda *_args, **_options: code)
    monkeypatch.setattr(command, "_check_twin", lambda: None)
    monkeypatch.setattr(command.os, "execv", lambda _path, arguments: replaced.append(arguments))
    monkeypatch.setattr(command.sys, "executable", "/bin/python")
    monkeypatch.setattr(command.sys, "orig_argv", ["python", "-m", "iothub", "serve", *before])

    # as `iothub` runs it: click keeps the help option of the first call, which the reference page shows
    CliRunner().invoke(command.command, obj=app, help_option_names=["-h", "--help"])

    assert replaced == [["/bin/python", "-m", "iothub", "serve", *after]]
