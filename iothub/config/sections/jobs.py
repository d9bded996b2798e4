"""Jobs on Spark and their schedule."""
# ruff: noqa: RUF009 - `key` is evaluated once per class, as `field` is; its defaults are immutable

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from iothub.config import value_types
from iothub.config.sections.key import Reload, key

NIGHTLY_JOBS = ("compact_events", "usage", "archive", "insights", "verify")


@dataclass(frozen=True, slots=True)
class Spark:
    """Spark for the jobs, which run in their own process, never in the hub. Needs the extra `spark`: pip install 'iothub[spark]'."""

    master: str = key(
        value_types.text,
        "local[*]",
        'Spark master: "local[N]" for N cores of this machine, or the URL of a cluster.',
        Reload.NOW,
    )
    driver_memory: int = key(
        value_types.size(512 << 20, 1 << 40),
        1 << 30,
        "Memory of the job's Java process; Python needs more on top.",
        Reload.NOW,
    )
    shuffle_partitions: int = key(
        value_types.integer(1, 100_000),
        8,
        "Number of partitions for the sessions; use two or three per core.",
        Reload.NOW,
    )
    python: Path | None = key(
        value_types.path,
        None,
        "Python with iothub and its extra `spark`. Default: the one that runs `iothub`.",
        Reload.NOW,
    )
    archive: Path | None = key(
        value_types.path,
        None,
        "Folder for the events as Parquet files. Default: `archive` in the data directory.",
        Reload.NOW,
    )


@dataclass(frozen=True, slots=True)
class Jobs:
    """The nightly jobs: `iothub job run --nightly`, started by a timer (`iothub job schedule`)."""

    at: int | None = key(
        value_types.time_of_day,
        None,
        "Time of day (UTC) at which your timer starts them. The hub starts none, but raises the alarm `checkpoint_stale` when compaction is overdue.",
        Reload.NOW,
    )
    nightly: tuple[str, ...] = key(
        value_types.choices(*NIGHTLY_JOBS),
        ("compact_events", "usage", "archive", "insights"),
        "The jobs, in their order; after a failure the next one still runs.",
        Reload.NOW,
    )
    max_runtime_s: float = key(
        value_types.duration(60, 7 * 86400),
        6 * 3600.0,
        "A job that takes longer is stopped; its unfinished work is discarded.",
        Reload.NOW,
    )
