# cython: language_level=3, wraparound=False, binding=False
"""Listening descriptors: who comes in, how many at a time, and who is turned away when no descriptor is left.

Knows no limits of its own: an acceptor says how many may come, and introduces each of them.
"""

from __future__ import annotations

import logging

from libc.errno cimport EAGAIN, ECONNABORTED, EINTR, EMFILE, ENFILE, EPERM, EPROTO, errno
from posix.fcntl cimport O_RDONLY, open as c_open
from posix.unistd cimport close as c_close

from iothub.engine.sockets cimport Socket, Sockets
from iothub.engine.syscalls cimport *

from iothub.base.reasons import Reason


log = logging.getLogger("iothub.engine.doors")

cdef enum:
    ACCEPTS_PER_EVENT = 64
    SHED_AT_ONCE = 16


cdef class Listening:
    """One listening descriptor."""


cdef class Doors:
    """The listening descriptors of one process, and a spare one for the day when there are no more."""

    def __cinit__(self):
        self.spare_fd = -1

    def __init__(self, Sockets sockets):
        self.sockets = sockets
        self.listenings = []
        self.spare_fd = c_open(b"/dev/null", O_RDONLY | O_CLOEXEC)

    def __dealloc__(self):
        self.give_back()

    cdef int listen(self, int fd, object acceptor) except -1:
        """Accept from a listening, non-blocking descriptor; takes ownership of it."""
        cdef Listening listening = Listening()
        listening.fd = fd
        listening.acceptor = acceptor
        iothub_no_delay(fd)
        if self.sockets.add(fd) < 0:
            raise OSError(errno, "epoll_ctl failed")
        self.sockets.put(fd, listening)
        self.listenings.append(listening)
        return 0

    cdef void shut(self):
        """Accept nobody any more."""
        cdef Listening listening
        for listening in self.listenings:
            self.sockets.table[listening.fd] = None
            c_close(listening.fd)
        self.listenings.clear()

    cdef void give_back(self):
        """Free the spare descriptor, too: it is over."""
        if self.spare_fd >= 0:
            c_close(self.spare_fd)
            self.spare_fd = -1

    cdef int open_again(self) except -1:
        """A tick: listeners that were put off try again."""
        cdef Listening listening
        if self.spare_fd < 0:
            self.spare_fd = c_open(b"/dev/null", O_RDONLY | O_CLOEXEC)
        for listening in self.listenings:
            if listening.is_waiting and listening.acceptor.allowance() > 0:
                listening.is_waiting = False
                self.watch(listening, EPOLLIN)
        return 0

    cdef int accept_some(self, Listening listening) except -1:
        cdef char ip[64]
        cdef int fd, allowance, port = 0
        try:
            allowance = listening.acceptor.allowance()
        except Exception:
            log.exception("a listener failed")
            allowance = 0
        if allowance <= 0:
            self.put_off(listening)
            return 0
        for _ in range(min(allowance, ACCEPTS_PER_EVENT)):
            fd = iothub_accept(listening.fd, ip, sizeof(ip), &port)
            if fd >= 0:
                self.accepts += 1
                self.admit(listening, fd, (<bytes> ip).decode("ascii"), port)
            elif errno == EAGAIN:
                return 0
            elif errno == EMFILE or errno == ENFILE:
                self.shed_some(listening)
                return 0
            elif errno not in (EINTR, ECONNABORTED, EPROTO, EPERM):
                self.put_off(listening)  # no memory, or a network that went away: try again later
                return 0
        return 0

    cdef int admit(self, Listening listening, int fd, object ip, int port) except -1:
        cdef Socket socket = Socket.__new__(Socket)
        cdef Sockets sockets = self.sockets
        socket.sockets = sockets
        socket.fd = fd
        socket.interest = EPOLLIN
        sockets.put(fd, socket)
        try:
            if listening.acceptor.accepted(socket, ip, port):
                socket.acceptor = listening.acceptor
        except Exception:
            log.exception("accepting a connection failed", extra={"listener": listening.acceptor.listener.name})
        if socket.acceptor is None:
            return sockets.kill(socket, True)
        if sockets.add(fd) < 0:
            sockets.detach(socket, Reason.NETWORK)
            return sockets.kill(socket, True)
        return 0

    cdef void watch(self, Listening listening, uint32_t interest):
        cdef epoll_event event
        event.events = interest
        event.data.u64 = 0
        event.data.fd = listening.fd
        epoll_ctl(self.sockets.epoll_fd, EPOLL_CTL_MOD, listening.fd, &event)

    cdef void put_off(self, Listening listening):
        """Accept nothing until the next tick; meanwhile clients wait in the backlog, and nobody polls in vain."""
        listening.is_waiting = True
        self.watch(listening, 0)

    cdef void shed_some(self, Listening listening):
        """No descriptor is free. Use the spare one to close some who wait, so that they know; then rest until the next tick."""
        cdef char ip[64]
        cdef int fd, port = 0
        if self.spare_fd >= 0:
            c_close(self.spare_fd)
            self.spare_fd = -1
            for _ in range(SHED_AT_ONCE):
                fd = iothub_accept(listening.fd, ip, sizeof(ip), &port)
                if fd < 0:
                    break
                c_close(fd)
                self.shed += 1
            self.spare_fd = c_open(b"/dev/null", O_RDONLY | O_CLOEXEC)
        self.put_off(listening)
