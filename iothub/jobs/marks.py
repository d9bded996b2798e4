"""Letting go of what a job holds: its marks in both places where trimming looks for them.

Knows no log and trims nothing. Marks for the log of the sessions are beside the checkpoints, those for the log of the statistics with the accounts.
"""

from __future__ import annotations

from iothub.config.datadir import DataDir
from iothub.config.sections import Config
from iothub.jobs import specs
from iothub.records.events import Topic
from iothub_spark.spec import SqliteFile
from iothub_spark.stores.marks import job_marks, set_job_mark
from iothub_spark.stores.opened import opened_checkpoints
from iothub_tenants.accounts import marks
from iothub_tenants.accounts.store import AccountStore


def forget(settings: Config, data_dir: DataDir, store: AccountStore, job: str) -> list[str]:
    """Remove a job's marks; returns the logs that it held. A job that is under way sets its own again at its end.

    Raises:
        NotFoundError: There is no such job, and nothing is held by that name.
    """
    held = {log for name, log in marks.moved(store) if name == job and log.upper() in Topic.__members__}
    held |= _forget_beside_checkpoints(settings, data_dir, job)
    if not held:
        specs.entry_of(job)  # says which there are
    marks.forget(store, job)
    return sorted(held)


def _forget_beside_checkpoints(settings: Config, data_dir: DataDir, job: str) -> set[str]:
    place = specs.checkpoints_of(settings, data_dir)
    if isinstance(place, SqliteFile) and not place.path.exists():
        return set()
    held = set()
    with opened_checkpoints(place) as checkpoints:
        for topic in Topic:
            if job in job_marks(checkpoints, topic):
                set_job_mark(checkpoints, job, None, topic)
                held.add(topic.name.lower())
    return held
