"""The hub's local socket, asked by commands: who does not answer, and what is said then."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from iothub.cli.local_hub import LocalHub
from iothub.config.datadir import DataDir
from iothub.net import admin_frames
from tests.support.in_process.answering import AnsweringHub, silent_hub
from tests.support.in_process.command import Cli, Result

WORDS = (
    ("session", "list", "acme"),
    ("session", "discard", "acme", "c1", "--yes"),
    ("queue", "purge", "acme", "c1", "--yes"),
    ("queue", "show", "acme", "c1"),
    ("retain", "list", "acme"),
    ("retain", "delete", "acme", "#", "--yes"),
)


@pytest.mark.parametrize("words", WORDS)
def test_without_a_hub_it_is_said_what_to_do(cli: Cli, words: tuple[str, ...]) -> None:
    """Exit code 7, as for everything that is not reachable."""
    said = cli(*words, code=7).err

    assert said.startswith(f"iothub: no hub runs in {cli.data_dir}: ")
    assert said.endswith(f"start it with `iothub --data-dir {cli.data_dir} serve`\n")


def test_directory_without_init_is_named(call: Callable[..., Result], tmp_path: Path) -> None:
    result = call("--data-dir", f"{tmp_path}/none", "session", "list", "acme")

    assert (result.code, "init" in result.err) == (3, True)


def test_hub_that_starts_says_what_it_waits_for(cli: Cli) -> None:
    with AnsweringHub(cli.data_dir) as hub:
        hub.data_dir.write_hub({"starting": "waiting for HBase: it is down"})
        assert "waiting for HBase: it is down; see" in cli("session", "list", "acme", code=7).err


def test_workers_that_start_say_what_they_wait_for(cli: Cli) -> None:
    """Not their supervisor, which knows that they start and no more; what several wait for is said once."""
    whole = DataDir(cli.data_dir)
    with ExitStack() as stack:
        stack.enter_context(AnsweringHub(cli.data_dir))
        whole.write_hub({"starting": "its workers are starting"})
        for number in (1, 2):
            worker = DataDir.of_worker(whole.path, number)
            worker.make_own()
            lock = worker.lock("iothub serve")
            stack.callback(lock.release)
            worker.write_hub({"starting": "waiting for hub-1 (1): certificate_refused"})

        asked = cli("session", "list", "acme", code=7).err
        status = cli("status", "-o", "json", code=7).json

    assert "does not answer yet: waiting for hub-1 (1): certificate_refused; see" in asked
    assert (status["state"], status["reasons"]) == ("starting", ["waiting for hub-1 (1): certificate_refused"])


def test_process_without_a_socket_is_named(cli: Cli) -> None:
    """A copy of the accounts holds the directory, too."""
    lock = DataDir(cli.data_dir).lock("iothub db copy")
    said = cli("session", "list", "acme", code=7).err
    lock.release()

    assert "(iothub db copy), which does not answer" in said
    assert "admin.sock" in said


def test_silent_hub_is_waited_for_a_while(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LocalHub.ask, "__defaults__", (0.05,))
    with silent_hub(cli.data_dir):
        assert "no answer within 0 s" in cli("session", "list", "acme", code=7).err


@pytest.mark.parametrize(
    ("said", "code", "text"),
    [
        (b"", 7, "closed the connection without an answer"),
        (admin_frames.hello(), 7, "closed the connection without an answer"),
        (admin_frames.encode({"protocol": 2}), 4, "of different versions (admin protocol 2 and 1)"),
        (b"HTTP/1.1 400 Bad Request", 1, "a frame of 1213486160 bytes"),
        (admin_frames.hello() + admin_frames.encode({"rows": 1}), 1, "no answer, expected rows"),
    ],
)
def test_other_answers_are_told(cli: Cli, said: bytes, code: int, text: str) -> None:
    """By a hub that stops, one of another version, and what is none."""

    def exchange(connection: socket.socket, _asked: object) -> None:
        connection.recv(65_536)
        connection.sendall(said)

    hub = AnsweringHub(cli.data_dir, lambda _request: ([], {}))
    hub._exchange = exchange  # type: ignore[method-assign]
    with hub:
        assert text in cli("session", "list", "acme", code=code).err


def test_socket_is_reached_however_long_the_path_is(tmp_path: Path) -> None:
    """A Unix address has 107 bytes."""
    data_dir = DataDir(tmp_path / ("long" * 40))
    data_dir.path.mkdir()
    with socket.socket(socket.AF_UNIX) as made, data_dir.admin_address() as address:
        made.bind(address)

    assert data_dir.admin_socket.is_socket()
