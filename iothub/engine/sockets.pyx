# cython: language_level=3, wraparound=False, binding=False
"""Client sockets by descriptor, in one private epoll set; what must happen to which of them, and how each of them ends.

Knows no MQTT, reads nothing and writes nothing: the poller does; `listeners` adds sockets.

Theory. Nothing that is called while a batch is handled frees anything: sockets that end are noted, `lost` of their connections is
called between two flushes, and their descriptors are freed when the batch is over (`closed`), so that an event of the same batch never
reaches another socket that got the same number.

Invariants: `table[fd]` is the Socket or Listener that owns the descriptor; `connection.lost` is called once for each connection
that the acceptor made, `acceptor.released` once for each socket that it let in; no exception of either leaves this module.
"""

from __future__ import annotations

import logging
from collections import deque

from libc.errno cimport errno
from posix.unistd cimport close as c_close

from iothub.engine.syscalls cimport *

from iothub.base.reasons import Reason


log = logging.getLogger("iothub.engine.sockets")

cdef tuple REASONS = (None, *Reason)

cdef double LINGER_S = 5.0  # how long a polite close may take
cdef double DRAIN_S = 1.0  # how long input is thrown away after our end is shut
cdef unsigned short DRAIN_KIB = 1024  # how much of it; a read counts as one at least
cdef Py_ssize_t MOST_DRAINING = 1024  # sockets; above it a close is a close: their descriptors are needed
cdef double HALF_CLOSED_S = 30.0  # how long what a vanished peer has sent waits for its paused reader


cdef class Socket:
    """One client's socket: the engine's Transport. `connection` and `stream` are set by the acceptor."""

    cpdef void wake(self):
        if self.flags & (DIRTY | DEAD | DRAINING):
            return
        self.flags |= DIRTY
        self.sockets.dirty.append(self)
        self.sockets.wanted()

    cpdef void pause(self):
        # Lazy: most pauses end before anything arrives. EPOLLIN is taken out when it does.
        self.flags |= PAUSED

    cpdef void resume(self):
        if not self.flags & PAUSED:
            return
        self.flags &= ~PAUSED
        if not self.flags & (DEAD | DRAINING | CLOSING | DOOMED):
            self.sockets.watch(self, (self.interest | EPOLLIN) & ~<uint32_t>EPOLLRDHUP)

    def close(self, *, bint abort=False, bint drains=False):
        if abort:
            if not self.flags & (DEAD | DRAINING | DOOMED):
                self.flags |= DOOMED
                self.sockets.doomed.append(self)
                self.sockets.wanted()
        elif not self.flags & (DEAD | DRAINING | DOOMED | CLOSING):
            self.flags |= CLOSING | DRAINS if drains else CLOSING
            self.sockets.lingering.append((monotonic() + LINGER_S, self))
            self.wake()

    def fail(self, reason, *, bint abort=False):
        """Close from the transport's side: what is in `out` is written first, unless it is an abort, then `connection.lost(reason)`."""
        self.reason = REASONS.index(reason)
        self.close(abort=abort)

    @property
    def is_congested(self):
        """The kernel takes no more for now."""
        return (self.flags & BLOCKED) != 0


cdef class Share:
    """What one tenant has used of the running round."""


cdef class Sockets:
    """The sockets of one process. `schedule` is called once when something came up outside of a turn."""

    def __cinit__(self):
        self.epoll_fd = -1

    def __init__(self, schedule):
        self.schedule = schedule
        self.table = []
        self.dirty, self.failed, self.finished, self.doomed, self.closed = [], [], [], [], []
        self.lingering, self.half_closed, self.draining = deque(), deque(), deque()
        self.epoll_fd = epoll_create1(EPOLL_CLOEXEC)
        if self.epoll_fd < 0:
            raise OSError(errno, "epoll_create1 failed")

    def __dealloc__(self):
        if self.epoll_fd >= 0:
            c_close(self.epoll_fd)

    # --- descriptors

    cdef void wanted(self):
        """Something is to be written or closed; outside of a turn `schedule` must lead to a call of `settle`."""
        if not self.is_busy and not self.is_scheduled:
            self.is_scheduled = True
            self.schedule()

    cdef void put(self, int fd, object item):
        while len(self.table) <= fd:
            self.table.append(None)
        self.table[fd] = item

    cdef int add(self, int fd):
        """Watch a new descriptor for input; -1 and errno: it cannot be watched."""
        cdef epoll_event event
        event.events = EPOLLIN
        event.data.u64 = 0
        event.data.fd = fd
        return epoll_ctl(self.epoll_fd, EPOLL_CTL_ADD, fd, &event)

    cdef void watch(self, Socket socket, uint32_t interest):
        cdef epoll_event event
        if interest == socket.interest or socket.fd < 0:
            return
        event.events = interest
        event.data.u64 = 0
        event.data.fd = socket.fd
        if epoll_ctl(self.epoll_fd, EPOLL_CTL_MOD, socket.fd, &event) == 0:
            socket.interest = interest

    # --- ends

    cdef int end_noted(self) except -1:
        """End those that must, which may give others output."""
        cdef list sockets
        cdef Socket socket
        sockets = self.failed
        self.failed = []
        for socket in sockets:
            self.lose(socket, Reason.NETWORK)
        sockets = self.finished
        self.finished = []
        for socket in sockets:
            self.finish(socket)
        sockets = self.doomed
        self.doomed = []
        for socket in sockets:
            if not socket.flags & DEAD:
                self.detach(socket, REASONS[socket.reason] or Reason.NETWORK)
                self.kill(socket, not socket.flags & DRAINING)
        return 0

    cdef int end_overdue(self, double now) except -1:
        """Doom those whose polite end has taken too long."""
        cdef Socket socket
        for waiting in (self.lingering, self.draining, self.half_closed):
            while waiting and waiting[0][0] <= now:
                socket = waiting.popleft()[1]
                if not socket.flags & (DEAD | DOOMED):
                    socket.flags |= DOOMED
                    self.doomed.append(socket)
        return 0

    cdef int end_all(self) except -1:
        """Reset every client, call `lost` of its connection, free every descriptor. No listener is left in the table."""
        cdef object item
        for item in list(self.table):
            if item is not None and not (<Socket> item).flags & DEAD:
                self.detach(<Socket> item, Reason.NETWORK)
                self.kill(<Socket> item, not (<Socket> item).flags & DRAINING)
        self.free_closed()
        for waiting in (self.lingering, self.half_closed, self.draining):
            waiting.clear()
        c_close(self.epoll_fd)
        self.epoll_fd = -1
        return 0

    cdef void half_close(self, Socket socket):
        """A paused peer has closed its end: what it sent before may still be read, for a while."""
        self.half_closed.append((monotonic() + HALF_CLOSED_S, socket))
        self.watch(socket, socket.interest & ~<uint32_t> (EPOLLIN | EPOLLRDHUP))

    cdef int finish(self, Socket socket) except -1:
        """A polite close whose last byte is with the kernel.

        With unread input, or input that comes later, close() would send a reset, and the peer would lose what we sent last.
        """
        if socket.flags & (DEAD | DOOMED | DRAINING):
            return 0
        self.detach(socket, REASONS[socket.reason] or Reason.NETWORK)
        cdef bint is_drained = socket.flags & DRAINS != 0 or iothub_unread(socket.fd) > 0
        if is_drained and self.drained < MOST_DRAINING and shutdown(socket.fd, SHUT_WR) == 0:
            socket.flags |= DRAINING
            socket.bite = DRAIN_KIB
            self.drained += 1
            self.draining.append((monotonic() + DRAIN_S, socket))
            self.watch(socket, EPOLLIN)
            return 0
        return self.kill(socket, False)

    cdef int lose(self, Socket socket, object reason) except -1:
        """The peer has gone, or the socket failed."""
        if socket.flags & DEAD:
            return 0
        self.detach(socket, REASONS[socket.reason] or reason)
        return self.kill(socket, False)

    cdef int detach(self, Socket socket, object reason) except -1:
        cdef object connection = socket.connection
        socket.connection = None
        if connection is not None:
            try:
                connection.lost(reason)
            except Exception:
                log.exception("closing a connection failed", extra={"listener": socket.acceptor.listener.name})
        return 0

    cdef int kill(self, Socket socket, bint is_reset) except -1:
        if socket.flags & DEAD:
            return 0
        socket.flags |= DEAD
        if socket.flags & DRAINING:
            self.drained -= 1
        if is_reset:
            iothub_reset_on_close(socket.fd)
        self.closed.append(socket)
        return 0

    cdef void free_closed(self):
        """Free the descriptors of closed sockets: the batch is over, and holds no event of theirs."""
        cdef Socket socket
        cdef object acceptor
        cdef list closed
        while self.closed:
            closed = self.closed
            self.closed = []
            for socket in closed:
                self.table[socket.fd] = None
                c_close(socket.fd)
                socket.fd = -1
                acceptor = socket.acceptor
                socket.acceptor = None  # that of a link's dial knows its socket
                if acceptor is not None:
                    try:
                        acceptor.released(socket)
                    except Exception:
                        log.exception("releasing a connection failed")
                socket.stream = None
