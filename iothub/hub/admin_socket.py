"""The hub's local socket, put together: what is asked over it, answered from the parts of this hub.

Knows the node's parts by reference; the answers are `iothub_tenants.background.admin_queries`', the bytes `iothub.net.admin_server`'s.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, cast

from iothub.net.admin_server import AdminServer, AdminSocket
from iothub.records.state import SessionState
from iothub_services.events.journal import answer_of
from iothub_services.queues.routing import RoutingStore
from iothub_services.state.service import StatesOf
from iothub_tenants.background.admin_queries import AdminQueries, DriverOf

if TYPE_CHECKING:
    from iothub.hub.compose import Node


def open_socket(node: Node) -> AdminSocket:
    """Answer from now on. Raises UnavailableError."""
    queries = AdminQueries(
        find_tenant=lambda name: node.threads.run("accounts.tenant", node.registry.find_tenant, name),
        brokers=node.brokers,
        queues=node.queue_admin,
        retained=node.retained_admin,
        catch_up=node.company.catch_up,
        states_of=partial(_states_of, node),
        driver_of=_driver_of(node),
        run=node.threads.run,
    )
    return AdminSocket(node.reactor, AdminServer(queries.answer, node.reactor), node.data_dir)


async def _states_of(node: Node, keys: Sequence[tuple[int, str]]) -> list[SessionState]:
    """Return what the log says of these sessions, with what was noted until now."""
    node.journal.flush()
    return cast("list[SessionState]", await answer_of(lambda done: node.journal_thread.submit(StatesOf(keys), done)))


def _driver_of(node: Node) -> DriverOf:
    """Return what knows which driver has a queue. It is in memory: `AdminQueries` has asked for the queue's place before."""
    queues = node.queues
    return queues.home if isinstance(queues, RoutingStore) else lambda _queue_id: node.settings.queues.driver
