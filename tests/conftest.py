"""Every test: hubs start no REST API beside themselves unless the test says so; it would take a second and a port.

Collecting makes a million objects that stay to the end. The collector of garbage need not look at them: neither while they are made, nor
each time that a test makes garbage.
"""

from __future__ import annotations

import gc
import os
import shutil
import tempfile
from collections.abc import Generator

import pytest

os.environ.setdefault("IOTHUB_ADMIN__ENABLED", "off")

ROOM_BYTES = 1 << 30  # a hub holds its publishers when its disk has less than 256 MiB left (ADR 0082)


def pytest_configure() -> None:
    """Raises UsageError: hubs would hold their publishers, and hundreds of tests would fail for it."""
    folder = tempfile.gettempdir()
    free = shutil.disk_usage(folder).free
    if free < ROOM_BYTES:
        raise pytest.UsageError(
            f"{folder} has {free >> 20} MiB free and tests need {ROOM_BYTES >> 20}: make room, or let TMPDIR name another disk"
        )


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
