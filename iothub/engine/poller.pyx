# cython: language_level=3, wraparound=False, binding=False
"""All device sockets of a process behind one private epoll descriptor: turns, batches, reading and writing.

Knows no MQTT, no filter and no reactor; libc is called (`syscalls.pxd`) here, in `sockets` and in `listeners` alone. Whoever owns the reactor calls `wait(until)` for as long as it has nothing else to do, or
`turn(deadline)` when `fileno()` is readable; `tick(now)` ten times a second; and gives `schedule`, which is called once when output came up outside of a turn and `settle()` should follow.

Theory. A batch is what one `epoll_wait` reported. Bytes are fed, then the plane's `end_batch` wakes the sockets that have output, and each
of them is written once.

    epoll_wait -> handle (recv, feed) ... -> end_batch -> flush dirty -> failed, finished, doomed -> (again if any) -> free_closed

Members of a shared group get the messages of one publisher in turn, and so a write for each message, unless others have sent some, too: what is for
many sockets waits for what is ready by then, once.

Tenants take turns. A tenant that has used its part of a round is passed over until all others that are ready have been seen; epoll
reports its sockets again, behind all others. A client whose bytes take long is read in smaller bites.

Invariant: no exception of a callee leaves a turn.
"""

from __future__ import annotations

import logging

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE, PyByteArray_Resize
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.errno cimport EAGAIN, EINTR, errno
from libc.math cimport ceil
from libc.stdlib cimport free, malloc

from iothub.engine.listeners cimport Listener, Listeners
from iothub.engine.plane cimport Plane
from iothub.engine.sockets cimport (
    ADMITTED, BLOCKED, CLOSING, DEAD, DIRTY, DOOMED, DRAINING, FILTERS_ENDED, PAUSED, WARM, Share, Socket, Sockets,
)
from iothub.engine.state cimport Connection
from iothub.engine.syscalls cimport *

from iothub.base.reasons import Reason


log = logging.getLogger("iothub.engine.poller")

cdef enum:
    BATCH_EVENTS = 256
    FEW_EVENTS = 8  # up to here a batch is flushed after each event, unless it has something for another hub or more sockets: latency before batching
    READ_BYTES = 1 << 16
    READ_BYTES_FILTERED = 44 << 10  # with what a filter may hold back (one TLS record) still at most READ_BYTES in one feed
    READ_BYTES_BEFORE_SESSION = 1 << 12
    BITE_KIB = READ_BYTES >> 10

cdef double TURN_S = 0.002  # then timers, database answers and the admin side have their turn
cdef double LONGEST_WAIT_S = 3600.0
cdef double PART_S = 0.004  # of a tenant in a round while others are ready
cdef double SLOW_S = 0.004  # a feed that takes longer halves the client's next bite


cdef class Poller:
    """The sockets of one process. Everything on the reactor thread."""

    def __cinit__(self):
        self.buffer = <char *> malloc(READ_BYTES)
        self.events = <epoll_event *> malloc(BATCH_EVENTS * sizeof(epoll_event))
        if self.buffer == NULL or self.events == NULL:
            raise MemoryError()

    def __init__(self, plane, schedule):
        self.plane = plane
        self.engine = plane if type(plane) is Plane else None
        self.sockets = Sockets(schedule)
        self.listeners = Listeners(self.sockets)
        self.warm = []
        self.other_fd = -1

    def __dealloc__(self):
        free(self.buffer)
        free(self.events)

    def fileno(self):
        return self.sockets.epoll_fd

    def counters(self):
        return {
            "turns": self.turns,
            "events": self.event_total,
            "bytes_in": self.bytes_in,
            "bytes_out": self.bytes_out,
            "recv_calls": self.recv_calls,
            "send_calls": self.send_calls,
            "accepts": self.listeners.accepts,
            "shed": self.listeners.shed,
        }

    def listen(self, int fd, acceptor):
        """Accept from a listening, non-blocking descriptor; takes ownership of it."""
        self.listeners.listen(fd, acceptor)

    def adopt(self, int fd, acceptor):
        """Serve a descriptor that this process has connected, if the acceptor takes it; takes ownership of it."""
        self.listeners.admit(acceptor, fd, "", 0)
        self.sockets.wanted()

    def stop_accepting(self, acceptor):
        self.listeners.close(acceptor)

    def close(self):
        """Reset every client, call `lost` of its connection, free every descriptor."""
        if self.sockets.epoll_fd < 0:
            return
        self.listeners.close_all()
        self.sockets.is_busy = True
        self.sockets.end_all()
        self.listeners.close_spare()

    def watch(self, int fd):
        """Let `wait` look at a descriptor of whoever owns the reactor, too. Nothing is read from it."""
        if self.sockets.add(fd) < 0:
            raise OSError(errno, "epoll_ctl failed")
        self.other_fd = fd

    cpdef bint wait(self, double until) except -1:
        """Wait for sockets, and serve those that are ready.

        True: whoever owns the reactor has something to do: that monotonic time has come, its descriptor is ready, or the turn was too short for all
        that is. A signal ends the wait, too, so that its handler is called. Raises OSError: there is nothing to wait for any more.
        """
        cdef Sockets sockets = self.sockets
        cdef double left
        cdef int count, timeout_ms
        if sockets.is_busy or sockets.epoll_fd < 0:
            return True
        if self.event_at >= self.event_count:
            left = min(until - monotonic(), LONGEST_WAIT_S)
            timeout_ms = <int> ceil(left * 1000.0) if left > 0.0 else 0
            with nogil:
                count = epoll_wait(sockets.epoll_fd, self.events, BATCH_EVENTS, timeout_ms)
            if count < 0 and errno != EINTR:
                raise OSError(errno, "epoll_wait failed")
            if count <= 0:
                return count == 0 and monotonic() >= until
            self.event_at = 0
            self.event_count = count
            self.event_total += count
            if self.take_others_alone():
                return True
        if self.engine is not None:
            self.engine.turn.begin()  # a machine that was suspended is noticed before anything is handled
            self.has_handled = True
        self.is_other_ready = False
        self.turn(monotonic() + TURN_S)
        return self.is_other_ready or self.is_cut_short or monotonic() >= until

    cdef bint take_others_alone(self):
        """Take what was reported if it is the other descriptor alone; False: it is not."""
        if self.event_count != 1 or self.events[0].data.fd != self.other_fd:
            return False
        self.event_at = 1
        return True

    cpdef turn(self, double deadline):
        """Drain what is ready, until nothing is or the deadline (monotonic seconds) has passed."""
        cdef Sockets sockets = self.sockets
        cdef int count
        cdef bint is_put_off = False  # output for many waits for what is ready now
        if sockets.is_busy or sockets.epoll_fd < 0:
            return
        self.turns += 1
        self.is_cut_short = False
        sockets.is_busy = True
        try:
            while True:
                if self.event_at >= self.event_count:
                    count = epoll_wait(sockets.epoll_fd, self.events, BATCH_EVENTS, 0)
                    if count <= 0:
                        self.round += 1
                        break
                    self.event_at = 0
                    self.event_count = count
                    self.event_total += count
                    if self.take_others_alone():
                        self.is_other_ready = True
                        self.round += 1
                        break
                self.batch(deadline)
                is_put_off = not is_put_off and self.has_many_to_write()
                if not is_put_off:
                    self.write_batch()
                if monotonic() >= deadline:
                    self.is_cut_short = True
                    break
            if is_put_off:
                self.write_batch()
        finally:
            sockets.is_busy = False

    cpdef settle(self):
        """Write what came up outside of a turn."""
        cdef Sockets sockets = self.sockets
        sockets.is_scheduled = False
        if sockets.is_busy or sockets.epoll_fd < 0:
            return
        sockets.is_busy = True
        self.has_handled = True  # by others
        try:
            self.write_batch()
        finally:
            sockets.is_busy = False

    def tick(self, double now):
        """Ten times a second: lingering closes end, suspended listeners accept again."""
        self.sockets.end_overdue(now)
        self.listeners.resume()
        self.rest()
        self.settle()

    cdef int rest(self) except -1:
        """A connection that has written everything since the last tick may be idle from now on, and keeps less; one that is not pays once in a tick."""
        cdef Socket socket
        cdef list warm = self.warm
        self.warm = []
        for socket in warm:
            socket.flags &= ~<unsigned short> WARM
            if type(socket.connection) is Connection:
                (<Connection> socket.connection).rest()
        return 0

    # --- a batch

    cdef int batch(self, double deadline) except -1:
        """Handle the reported events; what the deadline leaves over is handled first in the next turn, so that no socket starves."""
        cdef bint is_few = self.event_count <= FEW_EVENTS
        cdef bint is_left_over = self.event_at > 0
        cdef list table = self.sockets.table
        cdef list opening = None
        cdef Socket socket
        cdef uint32_t mask
        cdef int fd
        cdef object item
        while self.event_at < self.event_count:
            fd = self.events[self.event_at].data.fd
            mask = self.events[self.event_at].events
            self.event_at += 1
            if fd == self.other_fd:
                self.is_other_ready = True
                continue
            if fd >= len(table):
                continue
            item = table[fd]
            if item is None:
                continue
            if is_left_over:
                mask &= EPOLLIN | EPOLLOUT  # the number may have a new owner since; a needless read does him no harm
            if type(item) is not Socket:
                self.has_handled = True
                self.listeners.accept_some(<Listener> item)
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
            if is_few and not self.is_routing() and not self.has_many_to_write():
                self.finish_batch()
            elif monotonic() >= deadline:
                break
        if opening is not None:
            for item, mask in opening:
                self.handle(<Socket> item, mask)
                if monotonic() >= deadline:
                    break  # the others are reported again
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
            self.round += 1  # seen for the second time: all others that are ready have been seen
            share.round = self.round
            share.used_s = 0.0
        begun = monotonic()
        self.handle(socket, mask)
        share.used_s += monotonic() - begun
        return True

    cdef int handle(self, Socket socket, uint32_t mask) except -1:
        self.has_handled = True
        if socket.flags & (DEAD | DOOMED):
            return 0
        if mask & EPOLLOUT:
            socket.flags &= ~<unsigned short> BLOCKED
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
                self.sockets.lose(socket, Reason.NETWORK)
            return 0
        self.bytes_in += size
        cdef double begun = monotonic(), took
        data = PyBytes_FromStringAndSize(self.buffer, size)
        try:
            if socket.stream is not None:
                socket.stream.received(data)
            elif self.is_of_engine(socket.connection):
                self.engine.feed(<Connection> socket.connection, data)
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
        elif socket.bite < BITE_KIB and took < SLOW_S / 2 and <size_t> size == limit:
            socket.bite <<= 1
        return 0

    cdef bint is_of_engine(self, object connection):
        """Whether the plane gets its bytes: not of a link, nor of a client that is traced."""
        return (
            self.engine is not None
            and type(connection) is Connection
            and (<Connection> connection).plane is self.engine
        )

    cdef Share share_of(self, object tenant):
        if tenant.share is None:
            tenant.share = Share.__new__(Share)
        return tenant.share

    cdef int discard(self, Socket socket) except -1:
        cdef ssize_t size = recv(socket.fd, self.buffer, READ_BYTES, 0)
        self.recv_calls += 1
        cdef ssize_t kib = (size + 1023) >> 10
        if size > 0:
            socket.bite = socket.bite - <unsigned short> kib if socket.bite > kib else 0
        if size == 0 or socket.bite == 0 or (size < 0 and errno != EAGAIN and errno != EINTR):
            self.sockets.kill(socket, False)
        return 0

    cdef int paused_event(self, Socket socket, uint32_t mask) except -1:
        """Something happened on a socket that is not read: its end must be noticed, and epoll must not report it again and again."""
        cdef Sockets sockets = self.sockets
        if mask & (EPOLLERR | EPOLLHUP):
            return sockets.lose(socket, Reason.NETWORK)
        if mask & EPOLLRDHUP:
            if iothub_unread(socket.fd) == 0 and not socket.flags & CLOSING and not self.has_more(socket):
                return sockets.lose(socket, Reason.NETWORK)
            sockets.half_close(socket)
        elif mask & EPOLLIN:
            sockets.watch(socket, (socket.interest & ~<uint32_t> EPOLLIN) | EPOLLRDHUP)
        return 0

    cdef bint has_more(self, Socket socket):
        """Whether the engine has something of a paused client that it has not parsed: perhaps its DISCONNECT."""
        return socket.connection is not None and socket.connection.partial is not None

    cdef int write_batch(self) except -1:
        if self.has_handled:
            self.finish_batch()
        self.sockets.free_closed()
        return 0

    cdef int finish_batch(self) except -1:
        """The plane wakes the sockets that have output, each is written once; then those end that must, which may give others output."""
        cdef Sockets sockets = self.sockets
        cdef list dirty
        cdef Socket socket
        while True:
            try:
                self.end_batch()
            except Exception:
                log.exception("writing the answers of a batch failed")
            while sockets.dirty:
                dirty = sockets.dirty
                sockets.dirty = []
                for socket in dirty:
                    self.flush(socket)
            if not (sockets.failed or sockets.finished or sockets.doomed):
                self.has_handled = False
                return 0
            sockets.end_noted()

    cdef bint is_routing(self) except -1:
        return self.plane.is_routing() if self.engine is None else self.engine.is_routing()

    cdef bint has_many_to_write(self) except -1:
        return (self.plane.unwritten() if self.engine is None else self.engine.unwritten()) > FEW_EVENTS

    cdef int end_batch(self) except -1:
        if self.engine is None:
            self.plane.end_batch()
        else:
            self.engine.end_batch()
        return 0

    # --- output

    cdef int flush(self, Socket socket) except -1:
        socket.flags &= ~<unsigned short> DIRTY
        if socket.flags & (DEAD | DOOMED | DRAINING | BLOCKED):
            return 0
        try:
            if self.write_all(socket) and socket.flags & CLOSING:
                self.sockets.finished.append(socket)
        except Exception:  # the protocol edge
            log.exception("writing to a connection failed", extra={"listener": socket.acceptor.listener.name})
            socket.fail(Reason.IMPLEMENTATION, abort=True)
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
                if socket.flags & CLOSING and socket.stream is not None and not socket.flags & FILTERS_ENDED:
                    socket.flags |= FILTERS_ENDED
                    socket.stream.add_final_bytes()
                    continue
                if socket.interest & EPOLLOUT:
                    self.sockets.watch(socket, socket.interest & ~<uint32_t> EPOLLOUT)
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
                self.sockets.failed.append(socket)
                return 0
            socket.flags |= BLOCKED
            self.sockets.watch(socket, socket.interest | EPOLLOUT)
            return 0
