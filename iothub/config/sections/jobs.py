"""Jobs on Spark, and when they run."""
# ruff: noqa: RUF009 - `key` is evaluated once per class, as `field` is; its defaults are immutable

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from iothub.config import value_types
from iothub.config.sections.key import key

NIGHTLY_JOBS = ("compact_events", "usage", "archive", "insights", "verify")


@dataclass(frozen=True, slots=True)
class Spark:
    """Spark, which jobs run on: in a process of their own, never in the hub. Needs the extra `spark`: pip install 'iothub[spark]'."""

    master: str = key(
        value_types.text, "local[*]", 'Where it runs: "local[N]" with N cores of this machine, or the URL of a cluster.'
    )
    driver_memory: int = key(
        value_types.size(512 << 20, 1 << 40), 1 << 30, "Memory of the job's Java process; Python's comes on top."
    )
    shuffle_partitions: int = key(
        value_types.integer(1, 100_000), 8, "Parts that the sessions are divided into; two or three for each core."
    )
    python: Path | None = key(
        value_types.path, None, "Python that has iothub and its extra `spark`; without it the one that runs `iothub`."
    )
    archive: Path | None = key(
        value_types.path, None, "Folder of the events as Parquet files; without it `archive` in the data directory."
    )


@dataclass(frozen=True, slots=True)
class Jobs:
    """The jobs of the night: `iothub job run --nightly`, which a timer starts (`iothub job schedule`)."""

    at: int | None = key(
        value_types.time_of_day,
        None,
        "When the timer starts them, in UTC; the hub itself starts nothing, but it knows what is due.",
    )
    nightly: tuple[str, ...] = key(
        value_types.choices(*NIGHTLY_JOBS),
        ("compact_events", "usage", "archive", "insights"),
        "Which, one after another; one that fails does not keep the next from running.",
    )
    max_runtime_s: float = key(
        value_types.duration(60, 7 * 86400),
        6 * 3600.0,
        "A job that takes longer is ended; what it has not finished does not count.",
    )
