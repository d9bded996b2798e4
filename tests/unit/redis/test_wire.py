"""What redis-py answers and raises, in our words."""

from __future__ import annotations

import socket
from threading import Thread

import pytest
from redis import exceptions

from iothub.base.units import Endpoint
from iothub_services.redis.calls import RedisRefusedError, RedisUnavailableError, command
from iothub_services.redis.wire import ReadOnlyRefusedError, RedisWire, WireOptions, open_wire, refusal
from tests.support.servers.fake_redis import FakeRedis


@pytest.mark.parametrize(
    "error",
    [
        exceptions.BusyLoadingError("Redis is loading the dataset in memory"),
        exceptions.OutOfMemoryError("command not allowed when used memory > 'maxmemory'."),
        exceptions.ReadOnlyError("You can't write against a read only replica."),
        exceptions.ResponseError("MISCONF Redis is configured to save RDB snapshots, but it's currently unable to"),
        exceptions.ResponseError("BUSY Redis is busy running a script."),
        exceptions.ResponseError("NOREPLICAS Not enough good replicas to write."),
        exceptions.NoScriptError("No matching script. Please use EVAL."),
    ],
    ids=lambda error: str(error)[:20],
)
def test_what_passes_may_be_tried_again(error: Exception) -> None:
    """And nothing was written."""
    refused = refusal(error)

    assert isinstance(refused, RedisUnavailableError)
    assert refused.retryable
    assert not refused.is_written


@pytest.mark.parametrize("word", ["OOM", "READONLY", "MISCONF", "NOREPLICAS"])
def test_refusal_inside_of_a_script_is_read_as_redis_6_tells_it(word: str) -> None:
    """Redis 7 gives the refusal itself, Redis 6.2 a text about the script around it."""
    where = (
        "Error running script (call to f_ff9c18634832b0b4115a19b4de5f4788a7cfbd4e): @user_script:30: @user_script: 30:"
    )
    refused = refusal(exceptions.ResponseError(f"{where} -{word} it is not taken now."))

    assert isinstance(refused, RedisUnavailableError)
    assert isinstance(refused, ReadOnlyRefusedError) is (word == "READONLY")
    assert not refused.is_written
    lasting = refusal(exceptions.ResponseError(f"{where} WRONGTYPE Operation against a key -OOM of the wrong kind"))
    assert isinstance(lasting, RedisRefusedError)


@pytest.mark.parametrize(
    "error",
    [
        exceptions.ResponseError("WRONGTYPE Operation against a key holding the wrong kind of value"),
        exceptions.NoPermissionError("this user has no permissions to run the 'get' command"),
        exceptions.ResponseError("ERR unknown command 'FROB'"),
    ],
    ids=lambda error: str(error)[:20],
)
def test_what_is_wrong_with_the_call_stays_wrong(error: Exception) -> None:
    """A defect of ours, or a right that the user lacks: repeating does not help."""
    refused = refusal(error)

    assert isinstance(refused, RedisRefusedError)
    assert not refused.retryable


def test_refused_call_of_a_transaction_stands_at_its_place() -> None:
    """EXEC answers for each; our errors have no class of redis-py's."""
    wire = FakeRedis().connect()
    calls = [command("MULTI"), command("SET", "a", "x"), command("HGET", "a", "b"), command("EXEC")]

    wire.send(calls)
    *queued, done = [wire.read() for _ in calls]

    assert queued == [b"OK", b"QUEUED", b"QUEUED"]
    assert isinstance(done, list)
    assert done[0] == b"OK"
    assert isinstance(done[1], RedisRefusedError)


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
    octets = b"x" * 200_000
    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        opened = Thread(target=lambda: wires.append(open_wire(Endpoint(*listening.getsockname()), options)))
        wires: list[RedisWire] = []
        options = WireOptions(timeout_s=0.5)
        opened.start()
        server, _ = listening.accept()
        server.sendall(b"+OK\r\n" * 3)  # to the handshake
        opened.join()
        wires[0].send([command("SET", "a", octets)])
        with pytest.raises(RedisUnavailableError):
            wires[0].read()
        wires[0].close()

        with server, pytest.raises(ConnectionResetError):
            b"".join(iter(lambda: server.recv(1 << 20), b""))


def test_password_is_not_shown() -> None:
    assert "hidden" not in repr(WireOptions(password="hidden"))
