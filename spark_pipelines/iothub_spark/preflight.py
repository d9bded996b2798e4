"""What is checked of a run before Spark is started: that there is no log yet, that it lacks events, that a file is damaged, that a server is silent.

Knows which stores each job reads, not what it does with them. Java takes seconds to start; whoever is refused need not wait for it.
"""

from __future__ import annotations

from iothub.records.events import Topic
from iothub.records.job_spec import Spec
from iothub_spark.erasing import require_gone, tenant_of
from iothub_spark.planning import plan_copy, planned, require_comparable
from iothub_spark.stores.accounts import opened_accounts
from iothub_spark.stores.archive import ARCHIVE, LOGS
from iothub_spark.stores.opened import opened_checkpoints, opened_log, opened_states

_BOTH = (Topic.SESSIONS, Topic.ANALYTICS)
_LOGS = {
    "compact_events": _BOTH[:1],
    "verify": _BOTH[:1],
    "usage": _BOTH[1:],
    "archive": _BOTH,
    "insights": _BOTH,
}


def check(spec: Spec) -> None:
    """Open what the job reads, and ask each store for one thing; then for what the job cannot do without.

    Raises:
        BackendError: A store does not answer.
        ConfigError: An option is missing.
        ConflictError: A store is of a newer program, the log lacks events, or the tenant is there.
        CorruptRecordError: A file is damaged.
        NotFoundError: There is no such file yet: no hub was started.
    """
    if topics := _LOGS.get(spec.job, ()):
        with opened_log(spec.events) as log:
            for topic in topics:
                log.begin(topic)
                log.end(topic)
    if own := _OWN.get(spec.job):
        own(spec)


def _look_at_compaction(spec: Spec) -> None:
    with opened_log(spec.events) as log, opened_checkpoints(spec.checkpoints) as checkpoints:
        planned(spec, log, checkpoints)
    with opened_accounts(spec.sql_url_file) as accounts:
        accounts.marks(LOGS[Topic.SESSIONS])  # nothing is trimmed past them


def _look_at_sides(spec: Spec) -> None:
    with (
        opened_log(spec.events) as log,
        opened_checkpoints(spec.checkpoints) as checkpoints,
        opened_states(spec.state) as states,
    ):
        require_comparable(log, checkpoints.pointer(), states.applied())


def _look_at_copies(spec: Spec) -> None:
    if spec.is_full:
        return  # begun anew where events are gone
    with opened_log(spec.events) as log, opened_accounts(spec.sql_url_file) as accounts:
        for topic, name in LOGS.items():
            mark = accounts.mark(ARCHIVE, name)
            plan_copy(log, None if mark is None else mark.offsets, topic, name)


def _look_at_tenant(spec: Spec) -> None:
    tenant_id = tenant_of(spec)
    with opened_accounts(spec.sql_url_file) as accounts:
        require_gone(accounts, tenant_id)


_OWN = {
    "compact_events": _look_at_compaction,
    "verify": _look_at_sides,
    "archive": _look_at_copies,
    "insights": _look_at_copies,
    "erase": _look_at_tenant,
}
