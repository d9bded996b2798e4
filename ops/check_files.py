"""Look at files that are about to be committed: private keys, merge marks, and files too large for a source tree.

Knows nothing of their meaning. Called by pre-commit with the file names; names each fault on a line of its own.
"""

from __future__ import annotations

import sys
from pathlib import Path

LARGEST_BYTES = 512 << 10
KEY_MARK = b"-----BEGIN " + b"PRIVATE KEY-----"
KEY_MARKS = (KEY_MARK, KEY_MARK.replace(b"PRIVATE", b"RSA PRIVATE"), KEY_MARK.replace(b"PRIVATE", b"EC PRIVATE"))
MERGE_MARKS = (b"<" * 7 + b" ", b">" * 7 + b" ")


def faults(name: str, content: bytes) -> list[str]:
    found = []
    if len(content) > LARGEST_BYTES:
        found.append(f"{name}: {len(content)} bytes, at most {LARGEST_BYTES} are allowed")
    if any(mark in content for mark in KEY_MARKS):
        found.append(f"{name}: contains a private key")
    if any(line.startswith(MERGE_MARKS) for line in content.splitlines()):
        found.append(f"{name}: contains merge conflict markers")
    return found


def main(names: list[str]) -> int:
    found = [fault for name in names if Path(name).is_file() for fault in faults(name, Path(name).read_bytes())]
    for fault in found:
        sys.stderr.write(fault + "\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
