"""Whether a process of this machine still runs."""

from __future__ import annotations

import psutil  # type: ignore[import-untyped]


def is_alive(pid: int) -> bool:
    """A process that has ended and that nobody has waited for runs no more."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
