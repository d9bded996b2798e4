"""Which sources the compiled modules were built from: a hash that lies beside them.

Knows nothing of iothub and imports nothing of it: setup.py writes the hash before anything is installed.
"""

from __future__ import annotations

import hashlib
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

STAMP = "compiled.sha256"


def compiled_sources(folder: Path) -> list[Path]:
    """What is compiled of a package: every `.py` with a `.pxd` beside it, and every `.pyx`."""
    typed = [path.with_suffix(".py") for path in sorted(folder.glob("*.pxd")) if path.with_suffix(".py").exists()]
    return [*typed, *sorted(folder.glob("*.pyx"))]


def fingerprint(folder: Path) -> str:
    """Hash what the package's compiled modules are made of, names and contents."""
    digest = hashlib.sha256()
    for path in [*compiled_sources(folder), *sorted(folder.glob("*.pxd"))]:
        content = path.read_bytes()
        digest.update(f"{path.name} {len(content)}\n".encode() + content)
    return digest.hexdigest()


def built_and_not(folder: Path) -> tuple[list[Path], list[Path]]:
    """Return the sources of what is compiled for this Python, and those of what is not."""
    built: list[Path] = []
    missing: list[Path] = []
    for source in compiled_sources(folder):
        is_built = any(source.with_suffix(suffix).exists() for suffix in EXTENSION_SUFFIXES)
        (built if is_built else missing).append(source)
    return built, missing


def is_stale(folder: Path) -> bool:
    """Say whether compiled modules lie here that were built from other sources than those beside them."""
    if next(folder.glob("*.so"), None) is None:
        return False
    stamp = folder / STAMP
    return not stamp.exists() or stamp.read_text().strip() != fingerprint(folder)
