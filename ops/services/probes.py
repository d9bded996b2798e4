"""Does a server answer? One real question each, as a client would ask it.

Knows no process: a server that is starting, paused or gone does not answer, and the exception says how.
"""

from __future__ import annotations

import os
import socket
import struct
import subprocess
from collections.abc import Sequence

from ops.services.errors import ServicesError
from ops.services.places import HOST, SQL_ACCOUNT
from ops.services.thrift import Gateway, Received

_CALL_S = 10.0  # the gateway's own retries end before
_METADATA, _METADATA_VERSION = 3, 1
_CORRELATION = 4711


def is_free(port: int) -> bool:
    """Tell whether nobody listens on a port of loopback."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def kafka_answers(port: int) -> None:
    """Ask for the cluster's metadata; the broker must know itself and a controller.

    Raises:
        OSError: Nobody answers, or not that.
    """
    client = b"iothub-services"
    request = struct.pack(">hhih", _METADATA, _METADATA_VERSION, _CORRELATION, len(client)) + client
    request += struct.pack(">i", 0)  # of no topic
    with socket.create_connection((HOST, port), _CALL_S) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        stream = connection.makefile("rb")
        (size,) = struct.unpack(">i", stream.read(4) or b"\0\0\0\0")
        answer = stream.read(size)
    if size < 8 or len(answer) < size:
        raise ConnectionError("the broker closed the connection")
    correlation, brokers = struct.unpack_from(">ii", answer)
    if correlation != _CORRELATION or brokers < 1:
        raise ConnectionError("the broker does not know itself yet")


def hbase_answers(port: int) -> None:
    """Read one row of every region of every enabled table through the gateway: after a crash the logs are replayed region by region.

    Raises:
        OSError: Nobody answers in time.
        ServicesError: The gateway answers, but HBase behind it does not.
    """
    with Gateway(port, _CALL_S) as gateway:
        for table in _list(gateway.call("getTableNames")):
            if isinstance(table, bytes) and gateway.call("isTableEnabled", table):
                for start in _region_starts(gateway, table):
                    gateway.call("getRow", table, start or b"\0")


def redis_answers(port: int) -> None:
    """Count the keys: while the file is read after a start, that is refused.

    Raises:
        OSError: Nobody answers, or not with a number.
    """
    with socket.create_connection((HOST, port), _CALL_S) as connection:
        connection.sendall(b"DBSIZE\r\n")
        answer = connection.makefile("rb").readline().decode(errors="replace").strip()
    if not answer.startswith(":"):
        raise ConnectionError(answer or "closed the connection")


def mariadb_answers(client: str, port: int) -> None:
    """Ask for a number in the hub's database, as the hub's user. Raises ServicesError."""
    command = [client, "--no-defaults", "--protocol=tcp", f"--host={HOST}", f"--port={port}", f"--user={SQL_ACCOUNT}"]
    _runs([*command, "--connect-timeout=5", "--execute=SELECT 1", SQL_ACCOUNT], {"MYSQL_PWD": SQL_ACCOUNT})


def postgresql_answers(client: str, port: int) -> None:
    """As above. Raises ServicesError."""
    command = [client, "--no-psqlrc", f"--host={HOST}", f"--port={port}", f"--username={SQL_ACCOUNT}"]
    environment = {"PGPASSWORD": SQL_ACCOUNT, "PGCONNECT_TIMEOUT": "5"}
    _runs([*command, "--command=SELECT 1", SQL_ACCOUNT], environment)


def _runs(command: Sequence[str], environment: dict[str, str]) -> None:
    """Run a client's program to its end; a password is in the environment, never among the arguments."""
    try:
        done = subprocess.run(
            command,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_CALL_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ServicesError(f"no answer within {_CALL_S:.0f} s") from None
    if done.returncode != 0:
        raise ServicesError((done.stderr.strip().splitlines() or [f"{command[0]} failed"])[-1])


def _region_starts(gateway: Gateway, table: bytes) -> list[bytes]:
    regions = _list(gateway.call("getTableRegions", table))
    starts = [region.get(1) for region in regions if isinstance(region, dict)]
    return [start for start in starts if isinstance(start, bytes)]


def _list(answer: Received | None) -> list[Received]:
    if not isinstance(answer, list):
        raise ServicesError(f"expected a list from the gateway, got {type(answer).__name__}")
    return answer
