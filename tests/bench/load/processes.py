"""Processes and ports, through /proc.

Knows no broker.
"""

from __future__ import annotations

import os
import pathlib
import random
import socket
import sys


def start_time(pid: int) -> str | None:
    """What tells a process from a later one with the same number; None for none and for a zombie."""
    try:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else fields[19]


def tree(root: int) -> dict[int, str]:
    """The living process and all its descendants: {pid: start time}."""
    parent = {}
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
    found, grew = {root}, True
    while grew:
        more = {p for p, pp in parent.items() if pp in found} - found
        found |= more
        grew = bool(more)
    return {p: t for p in found if (t := start_time(p))}


def listens(pids: dict[int, str], port: int) -> bool:
    """Does one of these processes, and not somebody else's broker, listen on the port?"""
    inodes = set()
    for table in ("tcp", "tcp6"):
        for line in pathlib.Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            f = line.split()
            if f[3] == "0A" and int(f[1].rpartition(":")[2], 16) == port:
                inodes.add(f"socket:[{f[9]}]")
    unknown = True
    for pid in pids:
        try:
            open_files = [os.readlink(fd) for fd in pathlib.Path(f"/proc/{pid}/fd").iterdir()]
        except OSError:
            continue
        unknown = False
        if inodes.intersection(open_files):
            return True
    return unknown and bool(inodes)  # another user's process: take its word


def free_ports(n: int) -> int:
    """The first of n consecutive ports nobody uses, below the range of outgoing connections."""
    for _ in range(200):
        first = random.randrange(20000, 32000)
        try:
            for port in range(first, first + n):
                with socket.socket() as s:
                    s.bind(("0.0.0.0", port))
            return first
        except OSError:
            continue
    sys.exit("compare: no free ports")


def cpu_set(text: str) -> set[int]:
    cpus = set()
    for part in text.split(","):
        low, _, high = part.partition("-")
        cpus |= set(range(int(low), int(high or low) + 1))
    return cpus
