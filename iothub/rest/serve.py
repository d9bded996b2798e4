"""The process of the API: a socket, uvicorn on it, until a signal ends it.

Knows no path.
"""

from __future__ import annotations

import logging as standard_logging
import signal
import socket
from collections.abc import Callable

import uvicorn

from iothub.base import log as logging
from iothub.base.errors import UnavailableError
from iothub.config.sections import Config
from iothub.rest.app import make_app
from iothub.rest.caller import Hub
from iothub.rest.front import MakePages
from iothub.rest.machine import Machine
from iothub.rest.timed_http import TimedH11Protocol
from iothub_tenants.accounts.store import AccountStore

CONNECTIONS = 256
_HEADER_BYTES = 32 << 10
_MESSAGE_BYTES = 2 << 20  # of a page to the server: an import of devices is larger, and comes as a file
_IDLE_S = 15
_STOP_S = 10

log = logging.get(__name__)


def serve(  # noqa: PLR0913  # all that a server is made of
    *,
    store: AccountStore,
    hub: Hub,
    machine: Machine,
    settings: Config,
    version: str,
    pages: MakePages | None,
    bind: str,
    port: int,
    on_ready: Callable[[str], None],
) -> None:
    """Serve until SIGTERM or SIGINT; requests that are under way have a moment to end. The caller closes the store.

    Raises UnavailableError: the port is in use, or the address is not of this machine.
    """
    app = make_app(store=store, hub=hub, machine=machine, settings=settings, version=version, pages=pages)
    configuration = uvicorn.Config(
        app,
        lifespan="on",
        http=TimedH11Protocol,
        ws="none" if pages is None else "websockets-sansio",
        ws_max_size=_MESSAGE_BYTES,
        access_log=False,
        log_config=None,
        server_header=False,
        forwarded_allow_ips=list(settings.admin.trusted_proxies),
        limit_concurrency=CONNECTIONS,
        timeout_keep_alive=_IDLE_S,
        timeout_graceful_shutdown=_STOP_S,
        h11_max_incomplete_event_size=_HEADER_BYTES,
    )
    standard_logging.getLogger("uvicorn").setLevel(standard_logging.WARNING)
    with listening(bind, port) as opened:
        host, port = opened.getsockname()[:2]
        address = f"http://{f'[{host}]' if ':' in host else host}:{port}"
        on_ready(address)
        log.info("ready", address=address)
        for number in (signal.SIGINT, signal.SIGTERM):  # uvicorn has its own, and then sends the signal again
            signal.signal(number, signal.SIG_IGN)
        uvicorn.Server(configuration).run(sockets=[opened])
    log.info("stopped")


def listening(bind: str, port: int) -> socket.socket:
    """Open the port. Raises UnavailableError."""
    try:
        found = socket.getaddrinfo(bind, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        opened = socket.socket(found[0], found[1] | socket.SOCK_CLOEXEC)
        try:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            opened.bind(found[4])
            opened.listen(CONNECTIONS)
        except BaseException:
            opened.close()
            raise
    except OSError as error:
        raise UnavailableError(
            f"the API cannot listen on {bind}:{port}: {error.strerror}: choose another with --port or --bind "
            "(settings admin.port, admin.bind)"
        ) from None
    return opened
