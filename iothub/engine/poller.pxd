# Attributes of the poller.

from libc.stdint cimport uint32_t, uint64_t

from iothub.engine.listeners cimport Listeners
from iothub.engine.plane cimport Plane
from iothub.engine.sockets cimport Share, Socket, Sockets
from iothub.engine.syscalls cimport epoll_event


cdef class Poller:
    cdef object plane
    cdef Plane engine  # the same, called without Python; None: a double of tests
    cdef Sockets sockets
    cdef Listeners listeners
    cdef list warm
    cdef char *buffer
    cdef epoll_event *events
    cdef int event_at
    cdef int event_count
    cdef int other_fd  # of whoever owns the reactor; -1: there is none
    cdef bint is_other_ready
    cdef bint is_cut_short  # the running turn ended by its deadline
    cdef bint has_handled  # something since the plane's batch ended last
    cdef unsigned long long round
    cdef uint64_t turns, event_total, bytes_in, bytes_out, recv_calls, send_calls

    cpdef bint wait(self, double until) except -1
    cpdef turn(self, double deadline)
    cdef bint take_others_alone(self)
    cpdef settle(self)
    cdef int batch(self, double deadline) except -1
    cdef bint handle_fairly(self, Socket socket, uint32_t mask) except -1
    cdef int handle(self, Socket socket, uint32_t mask) except -1
    cdef int read(self, Socket socket) except -1
    cdef bint is_of_engine(self, object connection)
    cdef Share share_of(self, object tenant)
    cdef bint has_more(self, Socket socket)
    cdef int discard(self, Socket socket) except -1
    cdef int paused_event(self, Socket socket, uint32_t mask) except -1
    cdef int rest(self) except -1
    cdef int write_batch(self) except -1
    cdef int finish_batch(self) except -1
    cdef bint is_routing(self) except -1
    cdef bint has_many_to_write(self) except -1
    cdef int end_batch(self) except -1
    cdef int flush(self, Socket socket) except -1
    cdef int write_all(self, Socket socket) except -1
