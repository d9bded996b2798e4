"""Say clearly when this Python is too old, before pip says it less clearly."""

from __future__ import annotations

import sys

if sys.version_info < (3, 11):
    found = ".".join(str(part) for part in sys.version_info[:3])
    sys.exit(f"iothub needs Python 3.11 or newer; this is {found}. Name another one: make PYTHON=python3.12 ...")
