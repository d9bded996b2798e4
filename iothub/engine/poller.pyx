# cython: language_level=3, wraparound=False, binding=False
"""All device sockets of a process behind one private epoll descriptor: accept, receive, flush, close. The one place with libc calls (`syscalls.pxd`).

Knows no MQTT, no filter and no reactor. Whoever owns the reactor calls `turn(deadline)` when `fileno()` is readable, `tick(now)` ten
times a second, and gives `schedule`, which is called once when output came up outside of a turn and `settle()` should follow.

Theory. A batch is what one `epoll_wait` reported. Bytes are fed, then the plane's `end_batch` wakes whoever has output, then each
woken socket is written once. Nothing called from `feed` frees anything: sockets that end are marked, their descriptors are
closed when the batch is over (`grave`), so an event of the same batch can never reach a stranger who got the same number.

    epoll_wait -> handle (recv, feed) ... -> end_batch -> flush dirty -> failed, finished, doomed -> (again if any) -> bury

Tenants take turns. A tenant that has used its part of a round is passed over until everybody who is ready has been seen; epoll reports
who was passed over again, behind all others. A client whose bytes take long is read in smaller bites.

Invariants: `table[fd]` is the Socket or Listening that owns the descriptor; `connection.lost` is called once for each connection
that the acceptor made, `acceptor.released` once for each socket that it let in; no exception of a callee leaves a turn.
"""

from __future__ import annotations

import logging
from collections import deque

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE, PyByteArray_Resize
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.errno cimport EAGAIN, ECONNABORTED, EINTR, EMFILE, ENFILE, EPERM, EPROTO, errno
from libc.stdlib cimport free, malloc
from posix.fcntl cimport O_RDONLY, open as c_open
from posix.unistd cimport close as c_close

from iothub.engine.connection cimport Connection
from iothub.engine.syscalls cimport *

from iothub.reasons import Reason


log = logging.getLogger("iothub.engine.poller")

cdef enum:
    BATCH_EVENTS = 256
    FEW_EVENTS = 8  # up to here a batch is flushed after each event: latency before batching
    READ_BYTES = 1 << 16
    READ_BYTES_FILTERED = 44 << 10  # with what a filter may hold back (one TLS record) still at most READ_BYTES in one feed
    READ_BYTES_BEFORE_SESSION = 1 << 12
    BITE_KIB = READ_BYTES >> 10
    ACCEPTS_PER_EVENT = 64
    SHED_AT_ONCE = 16

cdef enum:
    PAUSED = 1
    DIRTY = 2
    BLOCKED = 4  # the kernel's buffer is full; EPOLLOUT is armed
    CLOSING = 8  # write what is there, then end
    DOOMED = 16  # reset at the end of the batch
    DRAINING = 32  # our end is shut and the connection is gone; unread bytes are thrown away until the peer closes too
    DEAD = 64
    ADMITTED = 128  # has a session: big reads
    FAREWELL = 256  # the filters have said good-bye
    WARM = 512  # has written everything, a moment ago

cdef double PART_S = 0.004  # of a tenant in a round while others are ready
cdef double SLOW_S = 0.004  # a feed that takes longer halves the client's next bite
cdef double LINGER_S = 5.0  # how long a polite close may take
cdef double DRAIN_S = 1.0  # how long unread input is thrown away after our end is shut
cdef double HALF_CLOSED_S = 30.0  # how long what a vanished peer has sent waits for its paused reader


cdef class Socket:
    """One client's socket: the engine's Transport. `connection` and `stream` are set by the acceptor."""

    cpdef void wake(self):
        if self.flags & (DIRTY | DEAD | DRAINING):
            return
        self.flags |= DIRTY
        self.poller.dirty.append(self)
        self.poller.wanted()

    cpdef void pause(self):
        # Lazy: most pauses end before anything arrives. EPOLLIN is taken out when it does.
        self.flags |= PAUSED

    cpdef void resume(self):
        if not self.flags & PAUSED:
            return
        self.flags &= ~PAUSED
        if not self.flags & (DEAD | DRAINING | CLOSING | DOOMED):
            self.poller.watch(self, (self.interest | EPOLLIN) & ~<uint32_t>EPOLLRDHUP)

    def close(self, *, bint abort=False):
        if abort:
            if not self.flags & (DEAD | DRAINING | DOOMED):
                self.flags |= DOOMED
                self.poller.doomed.append(self)
                self.poller.wanted()
        elif not self.flags & (DEAD | DRAINING | DOOMED | CLOSING):
            self.flags |= CLOSING
            self.poller.lingering.append((monotonic() + LINGER_S, self))
            self.wake()

    def fail(self, reason):
        """Close from the transport's side: what is in `out` is written first, then `connection.lost(reason)`."""
        self.reason = reason
        self.close()

    @property
    def is_congested(self):
        """The kernel takes no more for now."""
        return (self.flags & BLOCKED) != 0


cdef class Share:
    """What one tenant has used of the running round."""


cdef class Listening:
    """One listening descriptor."""


cdef class Poller:
    """The sockets of one process. Everything on the reactor thread."""

    def __cinit__(self):
        self.epoll_fd = self.spare_fd = -1
        self.buffer = <char *> malloc(READ_BYTES)
        self.events = <epoll_event *> malloc(BATCH_EVENTS * sizeof(epoll_event))
        if self.buffer == NULL or self.events == NULL:
            raise MemoryError()

    def __init__(self, plane, schedule):
        self.plane = plane
        self.schedule = schedule
        self.table, self.listenings = [], []
        self.dirty, self.failed, self.finished, self.doomed, self.grave, self.warm = [], [], [], [], [], []
        self.lingering, self.half_closed, self.draining = deque(), deque(), deque()
        self.epoll_fd = epoll_create1(EPOLL_CLOEXEC)
        if self.epoll_fd < 0:
            raise OSError(errno, "epoll_create1 failed")
        self.spare_fd = c_open(b"/dev/null", O_RDONLY | O_CLOEXEC)

    def __dealloc__(self):
        if self.epoll_fd >= 0:
            c_close(self.epoll_fd)
        if self.spare_fd >= 0:
            c_close(self.spare_fd)
        free(self.buffer)
        free(self.events)

    def fileno(self):
        return self.epoll_fd

    def counters(self):
        return {
            "turns": self.turns,
            "events": self.event_total,
            "bytes_in": self.bytes_in,
            "bytes_out": self.bytes_out,
            "recv_calls": self.recv_calls,
            "send_calls": self.send_calls,
            "accepts": self.accepts,
            "shed": self.shed,
        }

    def listen(self, int fd, acceptor):
        """Accept from a listening, non-blocking descriptor; takes ownership of it."""
        cdef Listening listening = Listening()
        cdef epoll_event event
        listening.fd = fd
        listening.acceptor = acceptor
        iothub_no_delay(fd)
        event.events = EPOLLIN
        event.data.u64 = 0
        event.data.fd = fd
        if epoll_ctl(self.epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0:
            raise OSError(errno, "epoll_ctl failed")
        self.put(fd, listening)
        self.listenings.append(listening)

    def stop_accepting(self):
        cdef Listening listening
        for listening in self.listenings:
            self.table[listening.fd] = None
            c_close(listening.fd)
        self.listenings.clear()

    def close(self):
        """Reset every client, tell its connection, free every descriptor."""
        if self.epoll_fd < 0:
            return
        self.stop_accepting()
        self.is_busy = True
        for item in list(self.table):
            if item is not None and not (<Socket> item).flags & DEAD:
                self.detach(<Socket> item, Reason.NETWORK)
                self.kill(<Socket> item, True)
        self.bury()
        for waiting in (self.lingering, self.half_closed, self.draining):
            waiting.clear()
        c_close(self.epoll_fd)
        self.epoll_fd = -1
        if self.spare_fd >= 0:
            c_close(self.spare_fd)
            self.spare_fd = -1

    cpdef turn(self, double deadline):
        """Drain what is ready, until nothing is or the deadline (monotonic seconds) has passed."""
        cdef int count
        if self.is_busy or self.epoll_fd < 0:
            return
        self.turns += 1
        self.is_busy = True
        try:
            while True:
                if self.event_at >= self.event_count:
                    count = epoll_wait(self.epoll_fd, self.events, BATCH_EVENTS, 0)
                    if count <= 0:
                        self.round += 1
                        break
                    self.event_at = 0
                    self.event_count = count
                    self.event_total += count
                self.batch(deadline)
                if monotonic() >= deadline:
                    break
        finally:
            self.is_busy = False

    cpdef settle(self):
        """Write what came up outside of a turn."""
        self.is_scheduled = False
        if self.is_busy or self.epoll_fd < 0:
            return
        self.is_busy = True
        try:
            self.finish_batch()
            self.bury()
        finally:
            self.is_busy = False

    def tick(self, double now):
        """Ten times a second: lingering closes end, listeners that were put off try again."""
        cdef Socket socket
        cdef Listening listening
        for waiting in (self.lingering, self.draining, self.half_closed):
            while waiting and waiting[0][0] <= now:
                socket = waiting.popleft()[1]
                if not socket.flags & (DEAD | DOOMED):
                    socket.flags |= DOOMED
                    self.doomed.append(socket)
        if self.spare_fd < 0:
            self.spare_fd = c_open(b"/dev/null", O_RDONLY | O_CLOEXEC)
        for listening in self.listenings:
            if listening.is_waiting and listening.acceptor.allowance() > 0:
                listening.is_waiting = False
                self.watch_listening(listening, EPOLLIN)
        self.rest()
        self.settle()

    cdef int rest(self) except -1:
        """Who has written everything since the last tick may be idle from now on, and keeps less; whoever is not pays once in a tick."""
        cdef Socket socket
        cdef list warm = self.warm
        self.warm = []
        for socket in warm:
            socket.flags &= ~<unsigned int> WARM
            if type(socket.connection) is Connection:
                (<Connection> socket.connection).rest()
        return 0

    # --- a batch

    cdef int batch(self, double deadline) except -1:
        """Handle the events in hand; what the deadline leaves over is handled first in the next turn, so that nobody starves."""
        cdef bint is_few = self.event_count <= FEW_EVENTS
        cdef bint is_left_over = self.event_at > 0
        cdef list opening = None
        cdef Socket socket
        cdef uint32_t mask
        cdef int fd
        cdef object item
        while self.event_at < self.event_count:
            fd = self.events[self.event_at].data.fd
            mask = self.events[self.event_at].events
            self.event_at += 1
            if fd >= len(self.table):
                continue
            item = self.table[fd]
            if item is None:
                continue
            if is_left_over:
                mask &= EPOLLIN | EPOLLOUT  # the number may have a new owner since; a needless read does him no harm
            if type(item) is not Socket:
                self.accept_some(<Listening> item)
            else:
                socket = <Socket> item
                if socket.flags & DEAD:
                    continue
                if socket.connection is None and not socket.flags & (DRAINING | CLOSING):
                    # A handshake: after the traffic, and only as many as fit.
                    if opening is None:
                        opening = []
                    opening.append((socket, mask))
                    continue
                if not self.handle_fairly(socket, mask):
                    continue
            if is_few:
                self.finish_batch()
            elif monotonic() >= deadline:
                break
        if opening is not None:
            for item, mask in opening:
                self.handle(<Socket> item, mask)
                if monotonic() >= deadline:
                    break  # the others are reported again
        self.finish_batch()
        self.bury()
        return 0

    cdef bint handle_fairly(self, Socket socket, uint32_t mask) except -1:
        """Charge what this event takes to its tenant; False: the tenant has had its part, and others come first."""
        cdef Share share = socket.share
        cdef double begun
        if share is None:
            self.handle(socket, mask)
            return True
        if share.round != self.round:
            share.round = self.round
            share.used_s = 0.0
        elif share.used_s >= PART_S:
            if socket.passed != <unsigned short> self.round:
                socket.passed = <unsigned short> self.round
                return False
            self.round += 1  # seen for the second time: so has been everybody else who is ready
            share.round = self.round
            share.used_s = 0.0
        begun = monotonic()
        self.handle(socket, mask)
        share.used_s += monotonic() - begun
        return True

    cdef int handle(self, Socket socket, uint32_t mask) except -1:
        if socket.flags & (DEAD | DOOMED):
            return 0
        if mask & EPOLLOUT:
            socket.flags &= ~<unsigned int> BLOCKED
            socket.wake()
        if socket.flags & DRAINING:
            return self.discard(socket)
        if socket.flags & (PAUSED | CLOSING):
            return self.paused_event(socket, mask)
        if mask & (EPOLLIN | EPOLLERR | EPOLLHUP | EPOLLRDHUP):
            return self.read(socket)
        return 0

    cdef int read(self, Socket socket) except -1:
        cdef size_t limit = READ_BYTES_BEFORE_SESSION
        if socket.flags & ADMITTED:
            limit = socket.bite << 10
            if socket.stream is not None and limit > READ_BYTES_FILTERED:
                limit = READ_BYTES_FILTERED
        cdef ssize_t size = recv(socket.fd, self.buffer, limit, 0)
        cdef object connection
        self.recv_calls += 1
        if size <= 0:
            if size == 0 or (errno != EAGAIN and errno != EINTR):
                self.lose(socket, Reason.NETWORK)
            return 0
        self.bytes_in += size
        cdef double begun = monotonic(), took
        data = PyBytes_FromStringAndSize(self.buffer, size)
        try:
            if socket.stream is not None:
                socket.stream.received(data)
            else:
                socket.connection.feed(data)
        except Exception:  # the protocol edge: one client's defect is one client's end
            log.exception("a connection failed", extra={"listener": socket.acceptor.listener.name})
            socket.fail(Reason.IMPLEMENTATION)
        if not socket.flags & ADMITTED:
            connection = socket.connection
            if connection is not None and connection.session is not None:
                socket.flags |= ADMITTED
                socket.bite = BITE_KIB
                socket.share = self.share_of(connection.tenant)
            return 0
        took = monotonic() - begun
        if took > SLOW_S:
            if socket.bite > 1:
                socket.bite >>= 1
        elif socket.bite < BITE_KIB and took < SLOW_S / 4 and <size_t> size == limit:
            socket.bite <<= 1
        return 0

    cdef Share share_of(self, object tenant):
        if tenant.share is None:
            tenant.share = Share.__new__(Share)
        return tenant.share

    cdef int discard(self, Socket socket) except -1:
        cdef ssize_t size = recv(socket.fd, self.buffer, READ_BYTES, 0)
        self.recv_calls += 1
        if size == 0 or (size < 0 and errno != EAGAIN and errno != EINTR):
            self.kill(socket, False)
        return 0

    cdef int paused_event(self, Socket socket, uint32_t mask) except -1:
        """Something happened on a socket that is not read: its end must be noticed, and nothing may be reported for ever."""
        if mask & (EPOLLERR | EPOLLHUP):
            return self.lose(socket, Reason.NETWORK)
        if mask & EPOLLRDHUP:
            if iothub_unread(socket.fd) == 0 and not socket.flags & CLOSING and not self.has_more(socket):
                return self.lose(socket, Reason.NETWORK)
            self.half_closed.append((monotonic() + HALF_CLOSED_S, socket))
            self.watch(socket, socket.interest & ~<uint32_t> (EPOLLIN | EPOLLRDHUP))
        elif mask & EPOLLIN:
            self.watch(socket, (socket.interest & ~<uint32_t> EPOLLIN) | EPOLLRDHUP)
        return 0

    cdef bint has_more(self, Socket socket):
        """Whether the engine has something of a paused client that it has not parsed: perhaps its goodbye."""
        return socket.connection is not None and socket.connection.partial is not None

    cdef int finish_batch(self) except -1:
        """The plane wakes who has output, each is written once; then those end that must, which may give others output."""
        cdef list sockets
        cdef Socket socket
        while True:
            try:
                self.plane.end_batch()
            except Exception:
                log.exception("the end of a batch failed")
            while self.dirty:
                sockets = self.dirty
                self.dirty = []
                for socket in sockets:
                    self.flush(socket)
            if not (self.failed or self.finished or self.doomed):
                return 0
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
                    self.detach(socket, socket.reason or Reason.NETWORK)
                    self.kill(socket, True)

    # --- output

    cdef int flush(self, Socket socket) except -1:
        socket.flags &= ~<unsigned int> DIRTY
        if socket.flags & (DEAD | DOOMED | DRAINING | BLOCKED):
            return 0
        try:
            if self.write_all(socket) and socket.flags & CLOSING:
                self.finished.append(socket)
        except Exception:  # the protocol edge
            log.exception("writing to a connection failed", extra={"listener": socket.acceptor.listener.name})
            socket.reason = Reason.IMPLEMENTATION
            socket.close(abort=True)
        return 0

    cdef int write_all(self, Socket socket) except -1:
        """Write what waits; 1: nothing is left. A failure is not handled here, in the middle of a flush, but after it."""
        cdef object source
        cdef ssize_t size, sent
        while True:
            if socket.stream is not None:
                source = socket.stream.pending()
            elif socket.connection is not None:
                source = socket.connection.out
            else:
                return 1
            size = PyByteArray_GET_SIZE(source)
            if size == 0:
                if not socket.flags & WARM:
                    socket.flags |= WARM
                    self.warm.append(socket)
                if socket.flags & CLOSING and socket.stream is not None and not socket.flags & FAREWELL:
                    socket.flags |= FAREWELL
                    socket.stream.farewell()
                    continue
                if socket.interest & EPOLLOUT:
                    self.watch(socket, socket.interest & ~<uint32_t> EPOLLOUT)
                return 1
            sent = send(socket.fd, PyByteArray_AS_STRING(source), size, MSG_NOSIGNAL)
            self.send_calls += 1
            if sent == size:
                self.bytes_out += sent
                PyByteArray_Resize(source, 0)
                continue
            if sent >= 0:
                self.bytes_out += sent
                del source[:sent]
            elif errno == EINTR:
                continue
            elif errno != EAGAIN:
                self.failed.append(socket)
                return 0
            socket.flags |= BLOCKED
            self.watch(socket, socket.interest | EPOLLOUT)
            return 0

    # --- ends

    cdef int finish(self, Socket socket) except -1:
        """A polite close whose last byte is with the kernel. With unread input, close() would send a reset that eats our last words."""
        if socket.flags & (DEAD | DOOMED | DRAINING):
            return 0
        self.detach(socket, socket.reason or Reason.NETWORK)
        if iothub_unread(socket.fd) > 0 and shutdown(socket.fd, SHUT_WR) == 0:
            socket.flags |= DRAINING
            self.draining.append((monotonic() + DRAIN_S, socket))
            self.watch(socket, EPOLLIN)
            return 0
        return self.kill(socket, False)

    cdef int lose(self, Socket socket, object reason) except -1:
        """The peer has gone, or the socket failed."""
        if socket.flags & DEAD:
            return 0
        self.detach(socket, socket.reason or reason)
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
        if is_reset:
            iothub_reset_on_close(socket.fd)
        self.grave.append(socket)
        return 0

    cdef void bury(self):
        """Close the descriptors of the dead: the batch is over, no event of theirs is in hand."""
        cdef Socket socket
        cdef object acceptor
        cdef list grave
        while self.grave:
            grave = self.grave
            self.grave = []
            for socket in grave:
                self.table[socket.fd] = None
                c_close(socket.fd)
                socket.fd = -1
                acceptor = socket.acceptor
                if acceptor is not None:
                    try:
                        acceptor.released(socket)
                    except Exception:
                        log.exception("releasing a connection failed")
                socket.stream = None

    # --- descriptors

    cdef void wanted(self):
        """Something is to be written or closed; outside of a turn somebody must call `settle`."""
        if not self.is_busy and not self.is_scheduled:
            self.is_scheduled = True
            self.schedule()

    cdef void watch(self, Socket socket, uint32_t interest):
        cdef epoll_event event
        if interest == socket.interest or socket.fd < 0:
            return
        event.events = interest
        event.data.u64 = 0
        event.data.fd = socket.fd
        if epoll_ctl(self.epoll_fd, EPOLL_CTL_MOD, socket.fd, &event) == 0:
            socket.interest = interest

    cdef void put(self, int fd, object item):
        while len(self.table) <= fd:
            self.table.append(None)
        self.table[fd] = item

    cdef void watch_listening(self, Listening listening, uint32_t interest):
        cdef epoll_event event
        event.events = interest
        event.data.u64 = 0
        event.data.fd = listening.fd
        epoll_ctl(self.epoll_fd, EPOLL_CTL_MOD, listening.fd, &event)

    cdef void put_off(self, Listening listening):
        """Accept nothing until the next tick; meanwhile clients wait in the backlog, and nobody polls in vain."""
        listening.is_waiting = True
        self.watch_listening(listening, 0)

    # --- accepting

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
        cdef epoll_event event
        socket.poller = self
        socket.fd = fd
        socket.interest = EPOLLIN
        self.put(fd, socket)
        try:
            if listening.acceptor.accepted(socket, ip, port):
                socket.acceptor = listening.acceptor
        except Exception:
            log.exception("accepting a connection failed", extra={"listener": listening.acceptor.listener.name})
        if socket.acceptor is None:
            return self.kill(socket, True)
        event.events = EPOLLIN
        event.data.u64 = 0
        event.data.fd = fd
        if epoll_ctl(self.epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0:
            self.detach(socket, Reason.NETWORK)
            return self.kill(socket, True)
        return 0

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
