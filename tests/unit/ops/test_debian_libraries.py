"""ops/debian/libraries.py: from what the dynamic linker reads to packages of Debian."""

from __future__ import annotations

import runpy
from collections.abc import Callable

import pytest

from tests.architecture.tree import ROOT

DEPENDS: Callable[..., list[str]] = runpy.run_path(str(ROOT / "ops/debian/libraries.py"))["depends"]


def described(*libraries: str, versions: str = "GLIBC_2.4") -> str:
    needed = "\n".join(f" 0x01 (NEEDED)             Shared library: [{name}]" for name in libraries)
    return f"{needed}\n  0x0010:   Name: {versions}  Flags: none  Version: 3\n"


def test_newest_version_of_the_c_library_counts() -> None:
    """By number: 2.14 is newer than 2.4."""
    found = DEPENDS([described("libc.so.6", versions="GLIBC_2.14"), described("libm.so.6", versions="GLIBC_2.4")], [])

    assert found == ["libc6 (>= 2.14)"]


def test_library_that_is_brought_along_needs_no_package() -> None:
    text = described("libc.so.6", "libpq-9d05ccc1.so.5.16", "libstdc++.so.6", "libz.so.1")

    assert DEPENDS([text], ["libpq-9d05ccc1.so.5.16"]) == ["libc6 (>= 2.4)", "libstdc++6", "zlib1g"]


def test_library_that_nobody_knows_ends_the_build() -> None:
    with pytest.raises(ValueError, match=r"no package is known for libodd\.so\.3"):
        DEPENDS([described("libc.so.6", "libodd.so.3")], [])
