"""Listening sockets and the few socket questions that Twisted does not answer.

Knows no reactor: it opens, sets options, and says in one line why it could not.
"""

from __future__ import annotations

import array
import contextlib
import errno
import fcntl
import socket
import termios

from iothub.base.errors import ConfigError, UnavailableError
from iothub.net.cidr import parse_ip, peer_name
from iothub.net.listener_info import ListenerInfo


def open_listening(listener: ListenerInfo) -> socket.socket:
    """Bind and listen.

    Raises:
        ConfigError: `bind` is not an address.
        UnavailableError: the port is in use, not permitted, or the address is not this machine's.
    """
    listening = _bound(listener)
    set_client_options(listening)
    try:
        listening.listen(listener.backlog)
    except (OSError, OverflowError) as error:
        listening.close()
        raise UnavailableError(_why_not(listener, listener.bind or "::", error)) from None
    return listening


def try_port(listener: ListenerInfo) -> None:
    """See that the port can be had, and let go of it: nobody can connect meanwhile. Raises as `open_listening`."""
    _bound(listener).close()


def _bound(listener: ListenerInfo) -> socket.socket:
    bind = listener.bind or "::"
    address = parse_ip(bind)
    if address is None:
        raise ConfigError(
            f"listeners.{listener.name}.bind: {bind!r} is not an IP address; write 127.0.0.1, 0.0.0.0 or ::"
        )
    family = socket.AF_INET6 if ":" in bind else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if listener.is_port_shared:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if bind == "::" else 1)
        if listener.receive_buffer_bytes:  # before listen(): the window scale is settled in the handshake
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, listener.receive_buffer_bytes)
        if listener.send_buffer_bytes:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, listener.send_buffer_bytes)
        listening.bind((bind, listener.port))
    except (OSError, OverflowError) as error:
        listening.close()
        raise UnavailableError(_why_not(listener, bind, error)) from None
    return listening


def _why_not(listener: ListenerInfo, bind: str, error: OSError | OverflowError) -> str:
    place = f"listener {listener.name!r} cannot use {peer_name(bind, listener.port)}"
    match getattr(error, "errno", None):
        case errno.EADDRINUSE:
            return f"{place}: the port is in use; stop the other program or set listeners.{listener.name}.port"
        case errno.EACCES | errno.EPERM:
            return f"{place}: no permission; ports below 1024 need CAP_NET_BIND_SERVICE, or choose a higher port"
        case errno.EADDRNOTAVAIL:
            return f"{place}: this machine does not have that address; set listeners.{listener.name}.bind"
        case _:
            return f"{place}: {error}"


def set_client_options(client: socket.socket) -> None:
    """Of a connection, or of a socket before it listens: who connects from then on has them, also before somebody accepts."""
    with contextlib.suppress(OSError):  # it is gone already, or not TCP
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def unread_bytes(client: socket.socket) -> int:
    """How much the peer has sent that nobody has read; 0 when the socket is gone."""
    count = array.array("i", [0])
    try:
        fcntl.ioctl(client.fileno(), termios.FIONREAD, count)
    except (OSError, ValueError):
        return 0
    return count[0]
