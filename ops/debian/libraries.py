"""Which packages of Debian the compiled modules of the package need: `libraries.py FOLDER` prints them as `Depends` has them.

Knows no module. Libraries that a wheel brings along (`NAME.libs/`) are found beside it and need no package; one that is in neither place
ends the build, for the hub would not start on another machine.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

PACKAGES = {
    "libgcc_s.so.1": "libgcc-s1",
    "libstdc++.so.6": "libstdc++6",
    "libz.so.1": "zlib1g",
    "libcrypt.so.1": "libcrypt1",
}
LIBC = re.compile(r"(ld-linux-[\w-]+|lib(c|m|dl|rt|util|pthread|resolv))\.so\.\d+")
_NEEDED = re.compile(r"\(NEEDED\)\s+Shared library: \[(.+)\]")
_VERSION = re.compile(r"\bGLIBC_(\d+)\.(\d+)")
_ELF = b"\x7fELF"


def modules(folder: Path) -> Iterator[Path]:
    """Yield the files that the dynamic linker reads."""
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.is_symlink() and path.open("rb").read(4) == _ELF:
            yield path


def depends(described: Iterable[str], brought: Iterable[str]) -> list[str]:
    """Return the packages. `described`: what `readelf -dV` says of each module; `brought`: names of libraries that are in the package.

    Raises ValueError: a library is in no package that is known.
    """
    text = "\n".join(described)
    needed = set(_NEEDED.findall(text)) - set(brought)
    unknown = {name for name in needed if name not in PACKAGES and not LIBC.fullmatch(name)}
    if unknown:
        raise ValueError(f"no package is known for {', '.join(sorted(unknown))}: name it in PACKAGES of {__file__}")
    newest = max((int(major), int(minor)) for major, minor in _VERSION.findall(text))
    return [f"libc6 (>= {newest[0]}.{newest[1]})", *sorted(PACKAGES[name] for name in needed if name in PACKAGES)]


def main(folder: Path) -> int:
    found = list(modules(folder))
    command = ["readelf", "--dynamic", "--version-info", "--wide"]
    described = [subprocess.run([*command, path], check=True, capture_output=True, text=True).stdout for path in found]
    try:
        sys.stdout.write(f"{', '.join(depends(described, (path.name for path in found)))}\n")
    except ValueError as error:
        sys.stderr.write(f"libraries.py: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
