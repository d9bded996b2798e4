"""What forks Spark's Python workers on one machine: PySpark's own daemon, which here loads PySpark from where it is installed.

Knows no job. Spark lets its workers find PySpark in an archive first, from which every process compiles the same modules again: most of the
processor time of a short run. The installed package is of the same version, for the driver started Spark from it, and has them compiled.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

NAME = "iothub_spark.daemon"


def without_archives(places: Sequence[str]) -> list[str]:
    """Return where modules are looked for, without the archives of Spark."""
    return [place for place in places if not _is_archive(Path(place))]


def _is_archive(place: Path) -> bool:
    return place.suffix == ".zip" and place.name.startswith(("pyspark", "py4j"))


def main() -> None:
    """Fork workers until Spark ends."""
    found = list(sys.path)
    sys.path[:] = without_archives(found)
    if find_spec("pyspark") is None or find_spec("py4j") is None:
        sys.path[:] = found
    from pyspark.daemon import manager

    manager()


if __name__ == "__main__":
    main()
