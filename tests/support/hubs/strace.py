"""Read what strace wrote: who received, wrote, synced and sent what, in which order.

Knows lines of `strace -f -y -xx`; knows no MQTT.
"""

from __future__ import annotations

import re
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.support.waiting import PATIENCE_S

CALLS = "fsync,fdatasync,sync_file_range,sendto,sendmsg,sendmmsg,write,writev,recvfrom,recvmsg,read,readv,pwrite64,pwritev,pwritev2"
RECEIVING = frozenset(("recvfrom", "recvmsg", "read", "readv"))
SENDING = frozenset(("sendto", "sendmsg", "sendmmsg", "write", "writev"))
WRITING = frozenset(("pwrite64", "pwritev", "pwritev2", "write", "writev"))
SYNCING = frozenset(("fsync", "fdatasync"))

_UNFINISHED = re.compile(r"^(\d+) +(\w+)\((.*?) *<unfinished \.\.\.>$")
_RESUMED = re.compile(r"^(\d+) +<\.\.\. (\w+) resumed>(.*)$")
_WHOLE = re.compile(r"^(\d+) +(\w+)\((.*)$")
_FILE = re.compile(r"^\d+<((?:\\x[0-9a-f]{2})*)>")
_RESULT = re.compile(r"\) += (-?\d+)")
_STRING = re.compile(r'"((?:\\x[0-9a-f]{2})*)"(\.\.\.)?')


@dataclass(frozen=True)
class Call:
    """One system call. `begun` and `ended` are line numbers: order in time."""

    begun: int
    ended: int
    name: str
    file: str
    data: bytes
    result: int


def calls(trace: Path) -> list[Call]:
    """Every finished call, by its end."""
    return list(_calls(trace.read_text().splitlines()))


def _calls(lines: list[str]) -> Iterator[Call]:
    waiting: dict[str, tuple[int, str, str]] = {}
    for number, line in enumerate(lines):
        if found := _UNFINISHED.match(line):
            waiting[found[1]] = (number, found[2], found[3])
        elif found := _RESUMED.match(line):
            if found[1] in waiting:
                begun, name, rest = waiting.pop(found[1])
                yield from _call(begun, number, name, rest + found[3])
        elif found := _WHOLE.match(line):
            yield from _call(number, number, found[2], found[3])


def _call(begun: int, ended: int, name: str, rest: str) -> Iterator[Call]:
    file, result = _FILE.match(rest), _RESULT.search(rest)
    if file is None or result is None:
        return
    parts = _STRING.findall(rest)
    assert not any(cut for _, cut in parts), f"strace cut the data of a {name}: raise -s"
    yield Call(begun, ended, name, _plain(file[1]).decode(), b"".join(_plain(one) for one, _ in parts), int(result[1]))


def _plain(escaped: str) -> bytes:
    return bytes.fromhex(escaped.replace("\\x", ""))


def syncs_written_to(trace: Path) -> tuple[str, ...]:
    """Return the words before a command whose syncs are to be seen, of its children too; it stops at nothing else."""
    return ("strace", "-f", "--seccomp-bpf", "-y", "-xx", "-e", "trace=fsync,fdatasync", "-o", str(trace))


class Tracer:
    """strace attached to a running process and all of its threads."""

    def __init__(self, pid: int, trace: Path) -> None:
        self.trace = trace
        words = ["strace", "-f", "-y", "-xx", "-s", "70000", "-e", f"trace={CALLS}", "-o", str(trace), "-p", str(pid)]
        self._process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
        assert self._process.stderr is not None
        first = self._process.stderr.readline()
        assert "attached" in first, f"strace could not attach: {first}{self._process.stderr.read()}"

    def stop(self) -> list[Call]:
        """Let the process go on alone and read what was seen."""
        self._process.send_signal(signal.SIGINT)
        self._process.communicate(timeout=PATIENCE_S)
        return calls(self.trace)
