"""One connection to one Redis server: the only file that knows redis-py, which opens it, and hiredis, which reads the answers.

Knows no other server, no repetition and no script. Blocks, for a bounded time; used by one thread at a time.
"""

from __future__ import annotations

import re
import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import hiredis
from redis import exceptions
from redis.backoff import NoBackoff
from redis.connection import Connection, SSLConnection
from redis.retry import Retry

from iothub.base.errors import BackendError
from iothub.base.units import Endpoint
from iothub_services.redis.calls import ADVICE, Call, PackedCall, RedisRefusedError, RedisUnavailableError, Reply

# Words that begin a refusal which is over some time: a replica, a server that loads, is full or cannot write, a script that takes long.
_PASSING = (
    "READONLY",
    "LOADING",
    "MASTERDOWN",
    "NOREPLICAS",
    "CLUSTERDOWN",
    "TRYAGAIN",
    "BUSY",
    "OOM",
    "MISCONF",
    "UNBLOCKED",
)
_RECEIVED_BYTES = 1 << 16  # at once
_NOTHING = object()  # no whole answer is there
# Redis 6 has its own text around what a script was refused.
_IN_SCRIPT = re.compile(r"Error running script \(.*?\): @\S+ @\S+ \d+: -([A-Z]+) ")
_RESP2 = 2
_ABORTED = struct.pack("ii", 1, 0)  # SO_LINGER: what a closed connection has not sent is not sent


class Wire(Protocol):
    """An open connection. After an error of `send` or `read` the caller closes it: the next answer would belong to another call."""

    def is_usable(self) -> bool:
        """Say whether the peer has neither closed it nor said something unasked. Costs one system call."""

    def send(self, calls: Sequence[Call]) -> None:
        """Raises RedisUnavailableError: some may have been sent."""

    def read(self, count: int) -> list[Reply]:
        """Wait for octets, and return the answers that are whole, at most so many, each the refusal that it is.

        Raises:
            RedisUnavailableError: Nothing comes.
        """

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class WireOptions:
    """Options of a connection. `client_name`: what CLIENT LIST shows."""

    database: int = 0
    username: str = ""
    password: str = field(default="", repr=False)
    timeout_s: float = 1.0
    is_tls: bool = False
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    client_name: str = "iothub"


class RedisWire:
    """A connection that redis-py has opened: its handshake, and none of its repetitions.

    Its reader of answers is by-passed: it makes several calls of Python for each.
    """

    def __init__(self, connection: Any, name: str) -> None:
        self._connection = connection
        self._socket = connection._sock
        self._name = name
        self._reader = hiredis.Reader(replyError=refusal, notEnoughData=_NOTHING)

    def is_usable(self) -> bool:
        try:
            return not self._reader.has_data() and not self._connection.can_read(0)
        except (exceptions.RedisError, OSError):
            return False

    def send(self, calls: Sequence[Call]) -> None:
        try:
            packed = [b"".join([self._packed(call) for call in calls])]
        except (exceptions.DataError, UnicodeError) as error:
            raise RedisRefusedError(f"cannot be sent to Redis: {error}") from None
        try:
            self._connection.send_packed_command(packed, check_health=False)
        except (exceptions.RedisError, OSError) as error:
            raise RedisUnavailableError(f"{self._name}: {_words(error)}", is_written=True) from None

    def _packed(self, call: Call) -> bytes:
        if type(call) is PackedCall:
            return call.octets
        return b"".join(self._connection.pack_command(*call.arguments))

    def read(self, count: int) -> list[Reply]:
        try:
            return self._whole(count) or self._received(count)
        except (hiredis.HiredisError, OSError) as error:
            raise RedisUnavailableError(f"{self._name}: {_words(error)}", is_written=True) from None

    def _received(self, count: int) -> list[Reply]:
        octets = self._socket.recv(_RECEIVED_BYTES)
        if not octets:
            raise ConnectionError("the server has closed the connection")
        self._reader.feed(octets)
        return self._whole(count)

    def _whole(self, count: int) -> list[Reply]:
        """Return what the octets so far are."""
        answers: list[Reply] = []
        take = self._reader.gets
        while len(answers) < count and (answer := take()) is not _NOTHING:
            answers.append(answer)
        return answers

    def close(self) -> None:
        self._connection.disconnect()


def open_wire(endpoint: Endpoint, options: WireOptions) -> RedisWire:
    """Connect, prove who we are, choose the database. Raises RedisUnavailableError.

    Invariant: closing the connection always aborts it (RST). Otherwise the server could still execute a call that was given up, after calls that
    were made later on another connection.
    """
    connection = _connection(endpoint, options)
    try:
        connection.connect()
        connection._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _ABORTED)
    except (exceptions.RedisError, OSError) as error:
        connection.disconnect()
        fact = f"Redis at {endpoint}: {_words(error).rstrip('.')}"
        raise RedisUnavailableError(fact, remedy=str(ADVICE)) from None
    return RedisWire(connection, f"Redis at {endpoint}")


def _connection(endpoint: Endpoint, options: WireOptions) -> Any:
    chosen: dict[str, Any] = {
        "host": endpoint.host,
        "port": endpoint.port,
        "db": options.database,
        "username": options.username or None,
        "password": options.password or None,
        "socket_timeout": options.timeout_s,
        "socket_connect_timeout": options.timeout_s,
        "socket_keepalive": True,
        "protocol": _RESP2,
        "client_name": options.client_name,
        "retry": Retry(NoBackoff(), 0),  # the caller decides: it knows whether a call may be repeated
    }
    if not options.is_tls:
        return Connection(**chosen)  # type: ignore[no-untyped-call]
    chosen["ssl_ca_certs"] = None if options.ca_file is None else str(options.ca_file)
    chosen["ssl_certfile"] = None if options.cert_file is None else str(options.cert_file)
    chosen["ssl_keyfile"] = None if options.key_file is None else str(options.key_file)
    return SSLConnection(**chosen)


def refusal(text: str) -> BackendError:
    """Return what an error that Redis has answered means."""
    said = " ".join(text.split()).removeprefix("ERR ")
    in_script = _IN_SCRIPT.match(said)
    word = in_script[1] if in_script else said.partition(" ")[0]
    fact = f"Redis refused: {said}"
    if word == "NOSCRIPT":
        return NoScriptRefusedError(fact)
    if word == "READONLY":
        return ReadOnlyRefusedError(fact)
    if word == "EXECABORT":
        return AbortedRefusedError(fact)
    return RedisUnavailableError(fact) if word in _PASSING else RedisRefusedError(fact)


def _words(error: BaseException) -> str:
    """Return the words of redis-py, or of the system, on one line."""
    return " ".join(str(error).split()) or type(error).__name__


class NoScriptRefusedError(RedisUnavailableError):
    """The server does not know the script: it has to be sent."""


class ReadOnlyRefusedError(RedisUnavailableError):
    """The server has become a replica: another one is the master now."""


class AbortedRefusedError(RedisUnavailableError):
    """Nothing of a transaction was done: the server did not queue all of it, or does not take it now."""
