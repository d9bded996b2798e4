"""Which functions make and read the bytes of a durable message: the compiled ones where they are there and wanted, or the plain ones.

Knows no format.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar, cast

Function = TypeVar("Function", bound=Callable[..., object])


def fastest(name: str, plain: Function, module: str = "encoder") -> Function:
    """Return the compiled function of this name, or the plain one. In the plain twin these packages have no compiled modules."""
    with suppress(ImportError):
        return cast("Function", getattr(importlib.import_module(f"iothub_services.queues.{module}"), name))
    return plain
