"""Every test: hubs start no REST API beside themselves unless the test says so; it would take a second and a port.

Collecting makes a million objects that stay to the end. The collector of garbage need not look at them: neither while they are made, nor
each time that a test makes garbage.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Generator

import pytest

os.environ.setdefault("IOTHUB_ADMIN__ENABLED", "off")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
