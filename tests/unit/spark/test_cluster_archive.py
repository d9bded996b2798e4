"""The archive for `--py-files`, made as the guide says: everything that runs in tasks can be imported from it."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pyspark

ROOT = Path(__file__).resolve().parents[3]
IN_TASKS = ("sources.events", "sources.states", "sinks.checkpoint", "transforms.fold", "transforms.checksums")
DRIVERS = ("stores.log_kafka", "stores.rows_hbase", "stores.rows_sqlite")


def test_what_runs_in_tasks_is_in_the_archive_of_the_guide(tmp_path: Path) -> None:
    """An executor has the packages of the extra and this file, no checkout; compiled modules cannot be in it."""
    guide = (ROOT / "docs/guide/spark.md").read_text(encoding="utf-8")
    found = re.search(r"zip -qr /tmp/iothub-jobs\.zip (iothub/.*)$", guide, re.MULTILINE)
    assert found is not None
    archive = tmp_path / "jobs.zip"
    with zipfile.ZipFile(archive, "w") as made:
        named = [ROOT / name for name in found[1].split()]
        for path in [file for each in named for file in ([each] if each.is_file() else each.rglob("*.py"))]:
            made.write(path, path.relative_to(ROOT))
        for path in (ROOT / "spark_pipelines/iothub_spark").rglob("*.py"):
            made.write(path, path.relative_to(ROOT / "spark_pipelines"))

    modules = [f"iothub_spark.{name}" for name in (*IN_TASKS, *DRIVERS)]
    program = (
        f"import sys; sys.path[:0] = [{str(archive)!r}, {str(Path(pyspark.__file__).parents[1])!r}]\n"
        + "".join(f"import {name}\n" for name in modules)
        + f"assert all({str(archive)!r} in m.__file__ for n, m in sys.modules.items() if n.startswith('iothub'))"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program],
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr[-2_000:]
