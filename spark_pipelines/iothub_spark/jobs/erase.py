"""The job `erase`: removes a purged tenant from archive, usage, reports and checkpoints, and says how much that was.

Knows the order of things. The session log is not touched: what it still has of the tenant goes when compaction trims it, so this is run after
the tenant was deleted and after a compaction. Run again it finds nothing; killed anywhere, the next run goes on.
"""

from __future__ import annotations

import time

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everywhere

from iothub.base.errors import ConflictError
from iothub.records.checkpoint import Pointer, checkpoint_version
from iothub.records.job_spec import Spec
from iothub_spark import checking
from iothub_spark.erasing import require_gone, tenant_of
from iothub_spark.report import Figures, Report
from iothub_spark.schemas.states import FOLDED
from iothub_spark.sinks.checkpoint import write_checkpoint
from iothub_spark.sources.states import read_checkpoint
from iothub_spark.stores import marks
from iothub_spark.stores.accounts import opened_accounts
from iothub_spark.stores.archive import folders_of, remove, reports_with
from iothub_spark.stores.opened import opened_checkpoints
from iothub_spark.stores.rows import Checkpoints


def run(spark: SparkSession, spec: Spec, report: Report) -> Figures:
    """Erase the tenant with the number `tenant_id`. Raises ConflictError: it is not deleted."""
    tenant_id = tenant_of(spec)
    with opened_accounts(spec.sql_url_file) as accounts:
        require_gone(accounts, tenant_id)
        hours = 0 if spec.is_dry_run else accounts.drop_hours(tenant_id)
    figures = _erase_files(spec, tenant_id)
    report.stage("archive", 1, 2, "stores")
    figures |= {"usage_hours": hours, "checkpoint_rows": _erase_rows(spark, spec, tenant_id)}
    report.stage("checkpoints", 2, 2, "stores")
    return figures


def _erase_files(spec: Spec, tenant_id: int) -> dict[str, int]:
    if spec.archive is None:
        return {"archive_files": 0, "reports": 0}
    folders, pages = folders_of(spec.archive, tenant_id), reports_with(spec.archive, tenant_id)
    if spec.is_dry_run:
        return {"archive_files": sum(1 for folder in folders for _ in folder.rglob("*.parquet")), "reports": len(pages)}
    count = sum(remove(folder) for folder in folders)
    for page in pages:
        page.unlink(missing_ok=True)
    return {"archive_files": count, "reports": len(pages)}


def _erase_rows(spark: SparkSession, spec: Spec, tenant_id: int) -> int:
    """Let a version without the tenant count, and drop all others: the older one has it too. Returns how many rows went."""
    with opened_checkpoints(spec.checkpoints) as checkpoints:
        pointer = checkpoints.pointer()
        if pointer is None:
            return 0
        checking.check_rows(spark, spec, pointer)  # a damaged one must not become a whole one
        rows = read_checkpoint(spark, spec, pointer.version)
        others = rows.where(F.col("tenant_id") != tenant_id)
        gone = pointer.rows - others.count()
        if spec.is_dry_run:
            return gone
        if gone:
            pointer = _replace(spark, spec, checkpoints, pointer, others)
        _drop_others(checkpoints, pointer)
        return gone


def _replace(spark: SparkSession, spec: Spec, checkpoints: Checkpoints, pointer: Pointer, rows: DataFrame) -> Pointer:
    """Write these rows as a version of the same place in the log, look at them, let them count. Raises ConflictError, CorruptRecordError."""
    at_ms = time.time_ns() // 1_000_000
    version = max(checkpoint_version(at_ms, spec.run_id), pointer.version + 1)
    write_checkpoint(spark, spec, rows.select(*FOLDED.names[:-1], F.lit(None).cast("string").alias("damage")), version)
    written = marks.written(checkpoints, version)
    if written is None:
        raise ConflictError(
            f"checkpoint {version} is discarded, because another run finished first and removed it; run the job again"
        )
    fresh = Pointer(version, pointer.offsets, written.rows, written.checksum, at_ms)
    checking.check_rows(spark, spec, fresh)
    marks.keep(checkpoints, fresh)
    if not checkpoints.move(pointer, fresh):
        marks.forget(checkpoints, [version])
        raise ConflictError(
            f"checkpoint {version} is discarded, because another run has finished meanwhile; run the job again"
        )
    return fresh


def _drop_others(checkpoints: Checkpoints, pointer: Pointer) -> None:
    gone = [
        version
        for version in {*checkpoints.versions(), *marks.marked_versions(checkpoints)}
        if version < pointer.version
    ]
    for version in gone:
        checkpoints.drop(version)
    marks.forget(checkpoints, gone)
