"""The process of one job: `python -m iothub_spark [--lifeline] JOB --spec FILE`.

Knows no job. `--lifeline`: end with standard input, or when the time that was written there has passed, as `iothub job run` wants it; whoever runs
this by hand or by spark-submit leaves it out.
"""

from __future__ import annotations

import json
import sys

from iothub_spark import lifeline

_PACKAGES = frozenset({"pyspark", "pyarrow", "py4j", "pandas", "numpy", "happybase", "kafka", "crc32c", "matplotlib"})


def run(arguments: list[str]) -> int:
    """Run a job and return the exit code; packages that are missing are named on standard output, as every failure is."""
    if arguments[:1] == ["--lifeline"]:
        lifeline.hold()
        arguments = arguments[1:]
    try:
        from iothub_spark.main import main

        return main(arguments)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _PACKAGES:
            raise
        text = f"{error.name} is not installed for {sys.executable}: pip install 'iothub[spark]'"
        sys.stdout.write(json.dumps({"event": "failed", "kind": "config", "text": text}) + "\n")
        return 2


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
