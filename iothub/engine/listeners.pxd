# The listening descriptors of the poller.

from libc.stdint cimport uint32_t, uint64_t

from iothub.engine.sockets cimport Sockets


cdef class Listener:
    cdef object acceptor
    cdef int fd
    cdef bint is_waiting


cdef class Listeners:
    cdef Sockets sockets
    cdef list listeners
    cdef int spare_fd
    cdef uint64_t accepts, shed

    cdef int listen(self, int fd, object acceptor) except -1
    cdef void close(self, object acceptor)
    cdef void close_all(self)
    cdef void close_spare(self)
    cdef int resume(self) except -1
    cdef int accept_some(self, Listener listener) except -1
    cdef int admit(self, object acceptor, int fd, object ip, int port) except -1
    cdef void watch(self, Listener listener, uint32_t interest)
    cdef void suspend(self, Listener listener)
    cdef void shed_some(self, Listener listener)
