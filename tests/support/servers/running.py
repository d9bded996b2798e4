"""A server of `make services` for as long as it is wanted: one that runs already goes on afterwards, one that was started here is stopped."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ops.services.services import Services


@contextmanager
def running(services: Services, name: str) -> Iterator[None]:
    """Hold the server. Raises ServicesError when it cannot be started."""
    is_ours = any(report.name == name and report.state == "down" for report in services.reports())
    services.up(name)
    try:
        yield
    finally:
        if is_ours:
            services.down(name)
