"""What administrators ask over the hub's local socket, put together from the parts that know the answers.

The answers are `iothub_tenants.background.admin_queries`' and `admin_commands`', the bytes `iothub.net.admin_server`'s.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from iothub.config.datadir import DataDir
from iothub.hub.backup_hold import BackupHold
from iothub.hub.cluster_members import ClusterMembers
from iothub.hub.parts import Brief
from iothub.hub.reload import Reloader
from iothub.net.admin_server import AdminServer, AdminSocket
from iothub.records.admin_commands import Answering, Json, Reply, Request, Verb, Verbs, answer_with
from iothub.records.state import SessionState
from iothub_services.events.journal import ThreadJournal, answer_of
from iothub_services.group_thread import GroupThread
from iothub_services.queues.port import QueueStore
from iothub_services.queues.routing import RoutingStore
from iothub_services.state.service import StateOp, StatesOf
from iothub_tenants.background.admin_queries import DriverOf


def open_socket(answer: Answering, reactor: Any, data_dir: DataDir) -> AdminSocket:
    """Answer from now on. Raises UnavailableError."""
    return AdminSocket(reactor, AdminServer(answer, reactor), data_dir)


def answers(verbs: Verbs, reloader: Reloader, hold: BackupHold, brief: Brief, members: ClusterMembers) -> Answering:
    """Return what answers every request: reload, backup, status and cluster are this process's own matter, `verbs` those of its parts."""

    async def answer(request: Request, reply: Reply) -> Json:
        if request.verb == Verb.CONFIG_RELOAD:
            return await reloader.answer(reply)
        if request.verb == Verb.BACKUP_HOLD:
            return await hold.begin()
        if request.verb == Verb.BACKUP_RELEASE:
            return await hold.end(request)
        if request.verb == Verb.CLUSTER_STATUS:
            return await members.answer(request, reply)
        return await brief() if request.verb == Verb.STATUS else await answer_with(verbs, request, reply)

    return answer


@dataclass(frozen=True, slots=True)
class NotedStates:
    """What the session log says, with what was noted until now."""

    journal: ThreadJournal
    thread: GroupThread[StateOp, object]

    async def of(self, keys: Sequence[tuple[int, str]]) -> list[SessionState]:
        self.journal.flush()
        return cast("list[SessionState]", await answer_of(lambda done: self.thread.submit(StatesOf(keys), done)))


def driver_of(queues: QueueStore, driver: str) -> DriverOf:
    """Return what knows which driver has a queue. Nothing is asked: `AdminQueries` has read the queue before."""
    return queues.known_home if isinstance(queues, RoutingStore) else lambda _queue_id: driver
