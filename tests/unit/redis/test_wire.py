"""What Redis answers, in our words, and how it is read."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread

import pytest

from iothub.base.units import Endpoint
from iothub_services.redis.calls import RedisRefusedError, RedisUnavailableError, command
from iothub_services.redis.wire import ReadOnlyRefusedError, RedisWire, WireOptions, open_wire, refusal
from tests.support.servers.fake_redis import FakeRedis


@contextmanager
def opened(receives_bytes: int = 1 << 16) -> Iterator[tuple[RedisWire, socket.socket]]:
    """Give a connection, and the server's end of it."""
    wires: list[RedisWire] = []
    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receives_bytes)
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        options = WireOptions(timeout_s=0.5)
        opening = Thread(target=lambda: wires.append(open_wire(Endpoint(*listening.getsockname()), options)))
        opening.start()
        server, _ = listening.accept()
        server.sendall(b"+OK\r\n" * 3)  # to the handshake
        opening.join()
        with server:
            yield wires[0], server
        wires[0].close()


@pytest.mark.parametrize(
    "text",
    [
        "LOADING Redis is loading the dataset in memory",
        "OOM command not allowed when used memory > 'maxmemory'.",
        "READONLY You can't write against a read only replica.",
        "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to",
        "BUSY Redis is busy running a script.",
        "NOREPLICAS Not enough good replicas to write.",
        "NOSCRIPT No matching script. Please use EVAL.",
    ],
    ids=lambda text: text.split()[0],
)
def test_what_passes_may_be_tried_again(text: str) -> None:
    """And nothing was written."""
    refused = refusal(text)

    assert isinstance(refused, RedisUnavailableError)
    assert refused.retryable
    assert not refused.is_written


@pytest.mark.parametrize("word", ["OOM", "READONLY", "MISCONF", "NOREPLICAS"])
def test_refusal_inside_of_a_script_is_read_as_redis_6_tells_it(word: str) -> None:
    """Redis 7 gives the refusal itself, Redis 6.2 a text about the script around it."""
    where = (
        "Error running script (call to f_ff9c18634832b0b4115a19b4de5f4788a7cfbd4e): @user_script:30: @user_script: 30:"
    )
    refused = refusal(f"ERR {where} -{word} it is not taken now.")

    assert isinstance(refused, RedisUnavailableError)
    assert isinstance(refused, ReadOnlyRefusedError) is (word == "READONLY")
    assert not refused.is_written
    lasting = refusal(f"ERR {where} WRONGTYPE Operation against a key -OOM of the wrong kind")
    assert isinstance(lasting, RedisRefusedError)


@pytest.mark.parametrize(
    "text",
    [
        "WRONGTYPE Operation against a key holding the wrong kind of value",
        "NOPERM this user has no permissions to run the 'get' command",
        "ERR unknown command 'FROB'",
    ],
    ids=lambda text: text.split()[0],
)
def test_what_is_wrong_with_the_call_stays_wrong(text: str) -> None:
    """A defect of ours, or a right that the user lacks: repeating does not help."""
    refused = refusal(text)

    assert isinstance(refused, RedisRefusedError)
    assert not refused.retryable


def test_refused_call_of_a_transaction_stands_at_its_place() -> None:
    """EXEC answers for each; our errors have no class of redis-py's."""
    with opened() as (wire, server):
        server.sendall(b"+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n+OK\r\n-WRONGTYPE Operation against a key\r\n")
        *queued, done = wire.read(4)

    assert queued == [b"OK", b"QUEUED", b"QUEUED"]
    assert isinstance(done, list)
    assert done[0] == b"OK"
    assert isinstance(done[1], RedisRefusedError)


def test_answers_that_came_together_are_read_together() -> None:
    """Those that are not whole yet are read later; what was not asked for stays, and makes the connection unusable."""
    with opened() as (wire, server):
        server.sendall(b":1\r\n$3\r\na\r\n\r\n$-1\r\n$6\r\nhal")
        together = wire.read(9)
        server.sendall(b"f")
        nothing = wire.read(9)
        server.sendall(b"ed\r\n:2\r\n")

        assert together == [1, b"a\r\n", None]
        assert nothing == []
        assert wire.read(1) == [b"halfed"]
        assert not wire.is_usable()
        assert wire.read(1) == [2]
        assert wire.is_usable()


def test_connection_that_the_server_closes_has_no_answer() -> None:
    """What was sent may be done."""
    with opened() as (wire, server):
        server.shutdown(socket.SHUT_WR)
        with pytest.raises(RedisUnavailableError, match="closed") as caught:
            wire.read(1)

    assert caught.value.is_written


def test_octets_that_are_no_answer_end_the_connection() -> None:
    with opened() as (wire, server):
        server.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        with pytest.raises(RedisUnavailableError, match="Redis at") as caught:
            wire.read(1)

    assert caught.value.is_written


def test_what_cannot_be_put_into_bytes_is_refused_before_anything_is_sent() -> None:
    wire = FakeRedis().connect()

    with pytest.raises(RedisRefusedError, match="cannot be sent"):
        wire.send([command("SET", "a", "\ud800")])


def test_server_that_is_not_there_is_unavailable() -> None:
    """With its address, on one line."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]

    with pytest.raises(RedisUnavailableError, match=rf"^Redis at 127\.0\.0\.1:{port}: .*refused") as caught:
        open_wire(Endpoint("127.0.0.1", port), WireOptions(timeout_s=0.5))

    assert not caught.value.is_written


def test_call_that_was_given_up_is_not_sent_any_more() -> None:
    """It would be done behind what was called since: what the server has not got yet goes with the connection."""
    with opened(receives_bytes=4096) as (wire, server):
        wire.send([command("SET", "a", b"x" * 200_000)])
        with pytest.raises(RedisUnavailableError):
            wire.read(1)
        wire.close()

        with pytest.raises(ConnectionResetError):
            b"".join(iter(lambda: server.recv(1 << 20), b""))


def test_password_is_not_shown() -> None:
    assert "hidden" not in repr(WireOptions(password="hidden"))
