"""A hub whose wall clock a test moves, as somebody does who sets the machine's; the monotonic one goes on.

A library that is loaded before the C library adds to the wall clock what a file says. Needs a C compiler, as the installation does.
"""

from __future__ import annotations

import mmap
import struct
import subprocess
import sysconfig
from pathlib import Path

from tests.support.hubs.hub import Hub

_SOURCE = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *offset_s;

__attribute__((constructor)) static void begin(void) {
    int file = open(getenv("MOVED_CLOCK"), O_RDONLY | O_CLOEXEC);
    offset_s = mmap(0, sizeof *offset_s, PROT_READ, MAP_SHARED, file, 0);
    close(file);
}

int clock_gettime(clockid_t clock, struct timespec *at) {
    int failed = syscall(SYS_clock_gettime, clock, at);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) && offset_s) at->tv_sec += *offset_s;
    return failed;
}

int gettimeofday(struct timeval *at, void *zone) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *at) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (at) *at = now.tv_sec;
    return now.tv_sec;
}
"""


class MovedClock:
    """The library and its file; both lie in `folder`."""

    def __init__(self, folder: Path) -> None:
        source, self._library, file = folder / "moved.c", folder / "moved.so", folder / "offset"
        source.write_text(_SOURCE)
        compiler = str(sysconfig.get_config_var("CC")).split()
        subprocess.run([*compiler, "-shared", "-fPIC", "-O1", "-o", str(self._library), str(source)], check=True)
        file.write_bytes(bytes(8))
        self._file = file
        with file.open("r+b") as opened:
            self._offset = mmap.mmap(opened.fileno(), 8)

    def put_before(self, hub: Hub) -> None:
        """Have the hub go by it from its next start on."""
        hub.is_whole = True
        hub.environment = {**hub.environment, "LD_PRELOAD": str(self._library), "MOVED_CLOCK": str(self._file)}

    def move_to(self, seconds: int) -> None:
        """Let the wall clock be so many seconds ahead of the machine's, from now on."""
        self._offset[:] = struct.pack("=q", seconds)
