"""What can be told of a run before Spark is started: that there is no log yet, that a file is damaged, that a server does not answer.

Knows which stores each job reads, not what it does with them. Java takes seconds to start; whoever has nothing to read need not wait for it.
"""

from __future__ import annotations

from iothub.records.events import Topic
from iothub_spark import damage
from iothub_spark.spec import Spec
from iothub_spark.stores.opened import opened_checkpoints, opened_log, opened_states

_BOTH = (Topic.SESSIONS, Topic.ANALYTICS)
_LOGS = {
    "compact_events": _BOTH[:1],
    "verify": _BOTH[:1],
    "usage": _BOTH[1:],
    "archive": _BOTH,
    "insights": _BOTH,
}
_WITH_CHECKPOINTS = frozenset({"compact_events", "verify"})


def look(spec: Spec) -> None:
    """Open what the job reads, and ask each store for one thing.

    Raises:
        BackendError: A store does not answer.
        ConfigError: Options do not go together.
        ConflictError: A store is of a newer program.
        CorruptRecordError: A file is damaged.
        NotFoundError: There is no such file yet: no hub was started.
    """
    damage.require_consistent(spec)
    if topics := _LOGS.get(spec.job, ()):
        with opened_log(spec.events) as log:
            for topic in topics:
                log.begin(topic)
                log.end(topic)
    if spec.job in _WITH_CHECKPOINTS:
        with opened_checkpoints(spec.checkpoints) as checkpoints:
            checkpoints.pointer()
    if spec.job == "verify" or spec.options.get("from_state") is True:
        with opened_states(spec.state) as states:
            states.applied()
