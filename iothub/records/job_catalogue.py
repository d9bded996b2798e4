"""The jobs by name, with their purpose and options, for code that starts jobs without loading Spark.

`iothub_spark.jobs` has one module for each name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

OptionKind = Literal["flag", "text", "number"]


@dataclass(frozen=True, slots=True)
class JobOption:
    """One option of a job, a key of the spec's `options`."""

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
    removed_options: Mapping[str, str] = field(default_factory=dict)  # with what replaces them

    def option(self, name: str) -> JobOption | None:
        return next((option for option in self.options if option.name == name), None)


FULL = JobOption("full", "flag", "Start at the beginning of the log, not where the last run ended.")
DRY_RUN = JobOption("dry_run", "flag", "Show what would be done; change nothing.")
FROM_STATE = JobOption(
    "from_state", "flag", "Build the checkpoint from the live session states, if the log is incomplete."
)
COMPACTION = "compact_events"
USAGE = "usage"
USAGE_SEEN = "analytics seen"  # a mark that holds no log: the end of what was summed

CATALOGUE: dict[str, JobEntry] = {
    entry.name: entry
    for entry in (
        JobEntry(
            COMPACTION,
            "Fold the session-event log into a new checkpoint, so that hubs start fast.",
            (FULL, DRY_RUN, FROM_STATE),
            {
                "leave_out_damaged": "damaged events are passed over and counted in the job's report: leave the option out"
            },
        ),
        JobEntry("verify", "Check that checkpoint, log and live session states agree."),
        JobEntry(USAGE, "Sum the usage of each tenant by hour.", (FULL, DRY_RUN)),
        JobEntry("insights", "Write a report of the activity of the tenants' devices."),
        JobEntry("archive", "Copy the events to Parquet files by tenant and day.", (FULL, DRY_RUN)),
        JobEntry(
            "erase",
            "Remove a deleted tenant from archive and checkpoints.",
            (JobOption("tenant_id", "number", "Number of the deleted tenant.", is_required=True), DRY_RUN),
        ),
    )
}
