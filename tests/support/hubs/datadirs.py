"""Data directories with one tenant and its devices, made once and copied: a test gets a fresh one without six commands.

Knows no hub process.
"""

from __future__ import annotations

import shutil
import tempfile
from functools import cache
from pathlib import Path

from tests.support.hubs.hub import Hub


@cache
def _template() -> Path:
    path = Path(tempfile.mkdtemp(prefix="iothub-template-")) / "data"
    hub = Hub(path)
    hub.init()
    hub.tenant("acme", "dev1", "dev2")
    return path


def fresh_hub(directory: Path, **settings: str) -> Hub:
    """A hub, not started, on a copy of the template: tenant acme on plan unlimited, devices dev1 and dev2, secret "secret"."""
    data_dir = directory / "data"
    shutil.copytree(_template(), data_dir)
    return Hub(data_dir, settings={key.replace("__", "."): value for key, value in settings.items()})
