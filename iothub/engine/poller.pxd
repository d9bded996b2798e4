# Attributes of the poller's classes. An idle socket is one Socket: about 100 bytes.

from libc.stdint cimport uint32_t, uint64_t


from iothub.engine.syscalls cimport epoll_event


cdef class Share:
    cdef unsigned long long round
    cdef double used_s


cdef class Socket:
    cdef Poller poller
    cdef object acceptor
    cdef object reason
    cdef public object connection
    cdef public object stream
    cdef Share share
    cdef int fd
    cdef unsigned int flags
    cdef uint32_t interest
    cdef unsigned short passed  # the round in which it was passed over
    cdef unsigned short bite  # the most that is read at once, in KiB

    cpdef void wake(self)
    cpdef void pause(self)
    cpdef void resume(self)


cdef class Listening:
    cdef object acceptor
    cdef int fd
    cdef bint is_waiting


cdef class Poller:
    cdef object plane
    cdef object schedule
    cdef list table
    cdef list dirty
    cdef list warm
    cdef list failed
    cdef list finished
    cdef list doomed
    cdef list grave
    cdef list listenings
    cdef object lingering
    cdef object half_closed
    cdef object draining
    cdef char *buffer
    cdef epoll_event *events
    cdef int event_at
    cdef int event_count
    cdef int epoll_fd
    cdef int spare_fd
    cdef bint is_busy
    cdef bint is_scheduled
    cdef unsigned long long round
    cdef readonly uint64_t turns, event_total, bytes_in, bytes_out, recv_calls, send_calls, accepts, shed

    cpdef turn(self, double deadline)
    cpdef settle(self)
    cdef void wanted(self)
    cdef int batch(self, double deadline) except -1
    cdef bint handle_fairly(self, Socket socket, uint32_t mask) except -1
    cdef int handle(self, Socket socket, uint32_t mask) except -1
    cdef int read(self, Socket socket) except -1
    cdef Share share_of(self, object tenant)
    cdef bint has_more(self, Socket socket)
    cdef int discard(self, Socket socket) except -1
    cdef int paused_event(self, Socket socket, uint32_t mask) except -1
    cdef int rest(self) except -1
    cdef int finish_batch(self) except -1
    cdef int flush(self, Socket socket) except -1
    cdef int write_all(self, Socket socket) except -1
    cdef int finish(self, Socket socket) except -1
    cdef int lose(self, Socket socket, object reason) except -1
    cdef int detach(self, Socket socket, object reason) except -1
    cdef int kill(self, Socket socket, bint is_reset) except -1
    cdef void bury(self)
    cdef void watch(self, Socket socket, uint32_t interest)
    cdef int accept_some(self, Listening listening) except -1
    cdef int admit(self, Listening listening, int fd, object ip, int port) except -1
    cdef void watch_listening(self, Listening listening, uint32_t interest)
    cdef void put_off(self, Listening listening)
    cdef void shed_some(self, Listening listening)
    cdef void put(self, int fd, object item)
