"""Hubs that run inside something: under strace, with a small disk of their own, with few descriptors.

Knows the tools of the system (`strace`, `unshare`, `prlimit`); their absence is an error, never a skipped test.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.support.hubs.hub import Hub
from tests.support.waiting import PATIENCE_S


@dataclass
class WrappedHub(Hub):
    """`prefix`: words before the hub's own command line. Signals go to the hub itself, not to what wraps it."""

    prefix: tuple[str, ...] = ()

    def command(self) -> list[str]:
        return [*self.prefix, *super().command()]

    @property
    def seen_data_dir(self) -> Path:
        """The data directory as the hub sees it (it may have mounts of its own)."""
        return self.data_dir

    @property
    def pid(self) -> int:
        return int(json.loads((self.seen_data_dir / "hub.json").read_text())["pid"])

    def stop(self) -> int:
        assert self.process is not None
        os.kill(self.pid, signal.SIGTERM)
        return self.process.wait(timeout=PATIENCE_S)


def in_own_mounts(script: str) -> tuple[str, ...]:
    """Words that run a command after `script` in a mount namespace of its own; works as root and without."""
    rights = ("-m",) if os.geteuid() == 0 else ("-m", "-U", "-r")
    return ("unshare", *rights, "sh", "-ec", f'{script}\nexec "$@"', "sh")


@dataclass
class SmallDiskHub(WrappedHub):
    """A hub whose data directory is on a disk of `disk_kib`; only it (and `seen_data_dir`) sees the disk.

    `leave_kib`: how much is free before the start; None: all that the directory leaves.
    """

    disk_kib: int = 24 << 10
    leave_kib: int | None = None

    def command(self) -> list[str]:
        data, copy = shlex.quote(str(self.data_dir)), shlex.quote(f"{self.data_dir}.copy")
        script = (
            f"rm -rf {copy}; cp -a {data} {copy}; "
            f"mount -t tmpfs -o size={self.disk_kib}k,mode=700 small {data}; cp -a {copy}/. {data}/"
        )
        if self.leave_kib is not None:
            free = f"$(df -k --output=avail {data} | tail -1)"
            script += f"; dd if=/dev/zero of={data}/filler bs=1k count=$(({free} - {self.leave_kib})) 2>/dev/null"
        self.prefix = in_own_mounts(script)
        return super().command()

    @property
    def seen_data_dir(self) -> Path:
        assert self.process is not None  # `exec` keeps the process id
        return Path(f"/proc/{self.process.pid}/root{self.data_dir}")

    def fill(self, leave_kib: int = 0) -> None:
        """Write until nothing but `leave_kib` is free."""
        with (self.seen_data_dir / "filler").open("wb", buffering=0) as filler:
            while (free := self.free_kib() - leave_kib) > 0:
                filler.write(b"\0" * (min(free, 1024) << 10))

    def free_kib(self) -> int:
        found = os.statvfs(self.seen_data_dir)
        return found.f_bavail * found.f_frsize >> 10

    def refuse_writes(self, above_bytes: int | None) -> None:
        """Have the system refuse every write beyond so many bytes of a file (None: no more of that)."""
        limit = "unlimited" if above_bytes is None else str(above_bytes)
        subprocess.run(["prlimit", "--pid", str(self.pid), f"--fsize={limit}:unlimited"], check=True)

    def make_room(self) -> None:
        (self.seen_data_dir / "filler").unlink()
