# Client sockets by descriptor. An idle one is one Socket: 80 bytes.

cimport cython
from libc.stdint cimport uint32_t


cdef enum:
    PAUSED = 1
    DIRTY = 2
    BLOCKED = 4  # the kernel's buffer is full; EPOLLOUT is armed
    CLOSING = 8  # write what is there, then end
    DOOMED = 16  # reset at the end of the batch
    DRAINING = 32  # our end is shut and the connection is gone; unread bytes are thrown away until the peer closes too
    DEAD = 64  # closed; its descriptor is freed at the end of the batch
    ADMITTED = 128  # has a session: big reads
    FILTERS_ENDED = 256  # the filters have written their last bytes (TLS close_notify, WebSocket Close)
    WARM = 512  # has written everything, a moment ago
    DRAINS = 1024  # what is written last says why it ends: it must not be lost to a reset


cdef class Share:
    cdef unsigned long long round
    cdef double used_s


@cython.final
@cython.no_gc  # `connection` is forgotten when its end begins, `stream` and `acceptor` when its descriptor is freed: no circle goes through it
cdef class Socket:
    cdef Sockets sockets
    cdef object acceptor
    cdef public object connection
    cdef public object stream
    cdef Share share
    cdef int fd
    cdef uint32_t interest
    cdef unsigned short flags
    cdef unsigned short passed  # the round in which it was passed over
    cdef unsigned short bite  # in KiB: the most that is read at once; while it is drained, what may still come
    cdef unsigned char reason  # why it ends, if the transport decides: place in `REASONS`, which begins with None

    cpdef void wake(self)
    cpdef void pause(self)
    cpdef void resume(self)


cdef class Sockets:
    cdef object schedule
    cdef list table
    cdef list dirty
    cdef list failed
    cdef list finished
    cdef list doomed
    cdef list closed
    cdef object lingering
    cdef object half_closed
    cdef object draining
    cdef Py_ssize_t drained  # sockets that are being drained; `draining` has some that have ended, too
    cdef int epoll_fd
    cdef bint is_busy
    cdef bint is_scheduled

    cdef void wanted(self)
    cdef void put(self, int fd, object item)
    cdef int add(self, int fd)
    cdef void watch(self, Socket socket, uint32_t interest)
    cdef int end_noted(self) except -1
    cdef int end_overdue(self, double now) except -1
    cdef int end_all(self) except -1
    cdef void half_close(self, Socket socket)
    cdef int finish(self, Socket socket) except -1
    cdef int lose(self, Socket socket, object reason) except -1
    cdef int detach(self, Socket socket, object reason) except -1
    cdef int kill(self, Socket socket, bint is_reset) except -1
    cdef void free_closed(self)
