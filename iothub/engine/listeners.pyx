# cython: language_level=3, wraparound=False, binding=False
"""Listening descriptors: accepts connections, a bounded number at a time, and rejects them when no descriptor is free.

Knows no limits of its own: an acceptor says how many connections it takes, and makes each of them.
"""

from __future__ import annotations

import logging

from libc.errno cimport EAGAIN, ECONNABORTED, EINTR, EMFILE, ENFILE, EPERM, EPROTO, errno
from posix.fcntl cimport O_RDONLY, open as c_open
from posix.unistd cimport close as c_close

from iothub.engine.sockets cimport Socket, Sockets
from iothub.engine.syscalls cimport *

from iothub.base.reasons import Reason


log = logging.getLogger("iothub.engine.listeners")

cdef enum:
    ACCEPTS_PER_EVENT = 64
    SHED_AT_ONCE = 16


cdef class Listener:
    """One listening descriptor."""


cdef class Listeners:
    """The listening descriptors of one process, and a spare descriptor to reject connections with when no other is free."""

    def __cinit__(self):
        self.spare_fd = -1

    def __init__(self, Sockets sockets):
        self.sockets = sockets
        self.listeners = []
        self.spare_fd = c_open(b"/dev/null", O_RDONLY | O_CLOEXEC)

    def __dealloc__(self):
        self.close_spare()

    cdef int listen(self, int fd, object acceptor) except -1:
        """Accept from a listening, non-blocking descriptor; takes ownership of it."""
        cdef Listener listener = Listener()
        listener.fd = fd
        listener.acceptor = acceptor
        iothub_no_delay(fd)
        if self.sockets.add(fd) < 0:
            raise OSError(errno, "epoll_ctl failed")
        self.sockets.put(fd, listener)
        self.listeners.append(listener)
        return 0

    cdef void close(self, object acceptor):
        """Accept no more connections for one acceptor."""
        cdef Listener listener
        cdef list remaining = []
        for listener in self.listeners:
            if listener.acceptor is acceptor:
                self.sockets.table[listener.fd] = None
                c_close(listener.fd)
            else:
                remaining.append(listener)
        self.listeners = remaining

    cdef void close_all(self):
        """Accept no more connections."""
        cdef Listener listener
        for listener in self.listeners:
            self.sockets.table[listener.fd] = None
            c_close(listener.fd)
        self.listeners.clear()

    cdef void close_spare(self):
        """Free the spare descriptor: the poller ends."""
        if self.spare_fd >= 0:
            c_close(self.spare_fd)
            self.spare_fd = -1

    cdef int resume(self) except -1:
        """A tick: suspended listeners accept again."""
        cdef Listener listener
        if self.spare_fd < 0:
            self.spare_fd = c_open(b"/dev/null", O_RDONLY | O_CLOEXEC)
        for listener in self.listeners:
            if listener.is_waiting and listener.acceptor.allowance() > 0:
                listener.is_waiting = False
                self.watch(listener, EPOLLIN)
        return 0

    cdef int accept_some(self, Listener listener) except -1:
        cdef char ip[64]
        cdef int fd, allowance, port = 0
        try:
            allowance = listener.acceptor.allowance()
        except Exception:
            log.exception("a listener failed")
            allowance = 0
        if allowance <= 0:
            self.suspend(listener)
            return 0
        for _ in range(min(allowance, ACCEPTS_PER_EVENT)):
            fd = iothub_accept(listener.fd, ip, sizeof(ip), &port)
            if fd >= 0:
                self.accepts += 1
                self.admit(listener.acceptor, fd, (<bytes> ip).decode("ascii"), port)
            elif errno == EAGAIN:
                return 0
            elif errno == EMFILE or errno == ENFILE:
                self.shed_some(listener)
                return 0
            elif errno not in (EINTR, ECONNABORTED, EPROTO, EPERM):
                self.suspend(listener)  # no memory, or a network that went away: try again later
                return 0
        return 0

    cdef int admit(self, object acceptor, int fd, object ip, int port) except -1:
        """Serve a connected, non-blocking descriptor, if the acceptor takes it; owns it in either case."""
        cdef Socket socket = Socket.__new__(Socket)
        cdef Sockets sockets = self.sockets
        socket.sockets = sockets
        socket.fd = fd
        socket.interest = EPOLLIN
        sockets.put(fd, socket)
        try:
            if acceptor.accepted(socket, ip, port):
                socket.acceptor = acceptor
        except Exception:
            log.exception("accepting a connection failed", extra={"listener": acceptor.listener.name})
        if socket.acceptor is None:
            return sockets.kill(socket, True)
        if sockets.add(fd) < 0:
            sockets.detach(socket, Reason.NETWORK)
            return sockets.kill(socket, True)
        return 0

    cdef void watch(self, Listener listener, uint32_t interest):
        cdef epoll_event event
        event.events = interest
        event.data.u64 = 0
        event.data.fd = listener.fd
        epoll_ctl(self.sockets.epoll_fd, EPOLL_CTL_MOD, listener.fd, &event)

    cdef void suspend(self, Listener listener):
        """Accept nothing until the next tick; clients wait in the kernel's backlog, and epoll reports nothing."""
        listener.is_waiting = True
        self.watch(listener, 0)

    cdef void shed_some(self, Listener listener):
        """No descriptor is free. Use the spare one to close some connections that wait, so that their clients know; then suspend until the next tick."""
        cdef char ip[64]
        cdef int fd, port = 0
        cdef list closed = []
        if self.spare_fd >= 0:
            c_close(self.spare_fd)
            self.spare_fd = -1
            for _ in range(SHED_AT_ONCE):
                fd = iothub_accept(listener.fd, ip, sizeof(ip), &port)
                if fd < 0:
                    break
                c_close(fd)
                closed.append(((<bytes> ip).decode("ascii"), port))
            self.shed += len(closed)
            self.spare_fd = c_open(b"/dev/null", O_RDONLY | O_CLOEXEC)
        self.suspend(listener)
        try:
            for address, number in closed:
                listener.acceptor.shed(address, number)
        except Exception:
            log.exception("a listener failed")
