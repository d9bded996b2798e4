"""Retained messages: the port and its drivers, and the index of topics.

The index is compiled, because every replay goes through it; the same source runs as the plain twin. `IOTHUB_PURE_PYTHON=1` forces that: this
package's modules are then found as sources only.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import SOURCE_SUFFIXES, FileFinder, SourceFileLoader

if os.environ.get("IOTHUB_PURE_PYTHON") == "1":
    for _directory in __path__:
        sys.path_importer_cache[_directory] = FileFinder(_directory, (SourceFileLoader, SOURCE_SUFFIXES))
