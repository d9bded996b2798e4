"""Asks Kafka every few seconds whether it answers, in a thread of its own: streams without traffic would not know.

Knows no topic and no stream. A consumer that finds nothing and a consumer whose Kafka is gone look the same from outside.
"""

from __future__ import annotations

import threading

from iothub.base import log as logging
from iothub.base.errors import BackendError, IotHubError
from iothub_services.events.kafka.cluster import KafkaCluster

_LOOK_S = 5.0
_AGAIN_S = 1.0  # after a look that failed
_FAILURES = 2  # this many in a row are no accident of a busy machine

log = logging.get(__name__)


class KafkaWatch:
    """Fulfils `StreamWatch`. `trouble`, `doubt`: the results of the last looks; "" while it is not needed."""

    def __init__(self, cluster: KafkaCluster) -> None:
        self._cluster = cluster
        self._condition = threading.Condition()
        self._is_needed = False  # this and what follows: under the condition
        self._is_closing = False
        self._failures = 0  # the thread's own
        self._thread: threading.Thread | None = None
        self.trouble = self.doubt = ""

    def watch(self, *, is_needed: bool) -> None:
        if is_needed == self._is_needed:
            return
        with self._condition:
            self._is_needed = is_needed
            self._condition.notify()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="streams-watch", daemon=True)
            self._thread.start()

    def close(self) -> None:
        with self._condition:
            self._is_closing = True
            self._condition.notify()

    # --- the thread

    def _run(self) -> None:
        while self._turn():
            with self._condition:
                if not self._is_closing:
                    self._condition.wait(_AGAIN_S if self._failures else _LOOK_S)

    def _turn(self) -> bool:
        """Look once, if that is needed; False: the hub stops."""
        if self._is_closing:
            return False
        if not self._is_needed:
            self._failures, self.trouble, self.doubt = 0, "", ""
            return True
        try:
            self._look()
        except Exception as error:  # the edge of this thread: without it no result would ever be reported again
            log.error("defect in the watch over Kafka", exc_info=error)
            self._failures += 1
            if self._failures >= _FAILURES:
                self.trouble, self.doubt = "", f"whether Kafka answers is not known: {type(error).__name__}"
        return True

    def _look(self) -> None:
        try:
            with self._cluster.admin() as admin:
                admin.describe_cluster()
        except IotHubError as error:
            self._failures += 1
            if self._failures >= _FAILURES or not isinstance(error, BackendError):
                self.trouble, self.doubt = str(error), ""
        else:
            self._failures, self.trouble, self.doubt = 0, "", ""
