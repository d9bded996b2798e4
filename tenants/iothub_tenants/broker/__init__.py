"""One tenant's broker, its parts, and the services of the hub that all brokers share.

The modules that every connect passes through are compiled; the same sources run as the plain twin. `IOTHUB_PURE_PYTHON=1` forces that: this
package's modules are then found as sources only.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import SOURCE_SUFFIXES, FileFinder, SourceFileLoader

if os.environ.get("IOTHUB_PURE_PYTHON") == "1":
    for _directory in __path__:
        sys.path_importer_cache[_directory] = FileFinder(_directory, (SourceFileLoader, SOURCE_SUFFIXES))
