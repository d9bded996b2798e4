"""The jobs by name: what each is for and which options it takes, for those who start jobs and never load Spark.

Knows nothing of how a job works; `iothub_spark.jobs` has one entry for each name here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

OptionKind = Literal["flag", "text", "number"]


@dataclass(frozen=True, slots=True)
class JobOption:
    """One option: as key of the spec's `options`, and what it does."""

    name: str
    kind: OptionKind
    sentence: str
    is_required: bool = False


@dataclass(frozen=True, slots=True)
class JobEntry:
    """One job."""

    name: str
    sentence: str
    options: tuple[JobOption, ...] = ()

    def option(self, name: str) -> JobOption | None:
        return next((option for option in self.options if option.name == name), None)


FULL = JobOption("full", "flag", "From the beginning of the log, not from where the last run ended.")
DRY_RUN = JobOption("dry_run", "flag", "Only say what would be done.")
FROM_STATE = JobOption("from_state", "flag", "From the live session states, when the log alone does not tell all.")
COMPACTION = "compact_events"
USAGE = "usage"
USAGE_SEEN = "analytics seen"  # a mark that holds nothing: the end of what was added up

CATALOGUE: dict[str, JobEntry] = {
    entry.name: entry
    for entry in (
        JobEntry(
            COMPACTION,
            "Fold the session-event log into a new checkpoint, so that a hub starts fast.",
            (FULL, DRY_RUN, FROM_STATE),
        ),
        JobEntry("verify", "Prove that checkpoint, log and live session states say the same."),
        JobEntry(USAGE, "Add up what each tenant used, by the hour.", (FULL, DRY_RUN)),
        JobEntry("insights", "Write a report of what the tenants' devices did."),
        JobEntry("archive", "Copy the events to Parquet files, by tenant and day.", (FULL, DRY_RUN)),
        JobEntry(
            "erase",
            "Remove a purged tenant from archive and checkpoints.",
            (JobOption("tenant_id", "number", "The number that the deleted tenant had.", is_required=True), DRY_RUN),
        ),
    )
}
