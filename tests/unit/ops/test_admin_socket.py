"""What is said at the socket of HBase's JVM, to a stand-in; the real one makes every table of `tests/services`."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ops.services.admin_socket import FILE, Done, run_inside

ASKED = b"\0\0\0\2" + b"\0\0\0\4Tool" + b"\0\0\0\3say" + b"\0\0\0\2in"


@contextmanager
def jvm(folder: Path, answer: bytes) -> Iterator[list[bytes]]:
    """Listen in a folder, take one request, answer with these bytes. Gives the requests."""
    asked: list[bytes] = []

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            asked.append(connection.recv(len(ASKED), socket.MSG_WAITALL))
            connection.sendall(answer)

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / FILE))
        listener.listen()
        thread = threading.Thread(target=serve)
        thread.start()
        yield asked
        thread.join()


def test_words_and_input_go_out_and_code_and_texts_come_back(tmp_path: Path) -> None:
    """In the bytes that `AdminSocket.java` reads and writes."""
    with jvm(tmp_path, struct.pack(">ii", 3, 3) + b"out" + struct.pack(">i", 0)) as asked:
        assert run_inside(tmp_path, ["Tool", "say"], b"in") == Done(3, b"out", b"")

    assert asked == [ASKED]


def test_folder_whose_path_is_too_long_for_a_socket_is_reached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """108 bytes are the kernel's limit, and folders of tests have long names."""
    folder = tmp_path / ("x" * 120)
    folder.mkdir()
    monkeypatch.chdir(folder)
    with jvm(Path(), struct.pack(">iii", 0, 0, 0)):
        assert run_inside(folder, ["Tool", "say"], b"in") == Done(0, b"", b"")


def test_nobody_listens_where_no_jvm_runs(tmp_path: Path) -> None:
    """Neither without a socket, nor at one that a killed JVM has left."""
    assert run_inside(tmp_path, ["Tool"], b"") is None
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(tmp_path / FILE))

    assert run_inside(tmp_path, ["Tool"], b"") is None


@pytest.mark.parametrize("answer", [b"", b"\0\0\0\0\0\0\0\5ha"])
def test_jvm_that_ends_before_its_answer_has_failed(tmp_path: Path, answer: bytes) -> None:
    """What was asked may be done: another JVM must not do it again as if nothing had been."""
    with jvm(tmp_path, answer):
        done = run_inside(tmp_path, ["Tool", "say"], b"in")

    assert done is not None
    assert (done.code, done.out) == (1, b"")
    assert b"the connection was closed" in done.err
