# The listening descriptors of the poller.

from libc.stdint cimport uint32_t, uint64_t

from iothub.engine.sockets cimport Sockets


cdef class Listening:
    cdef object acceptor
    cdef int fd
    cdef bint is_waiting


cdef class Doors:
    cdef Sockets sockets
    cdef list listenings
    cdef int spare_fd
    cdef uint64_t accepts, shed

    cdef int listen(self, int fd, object acceptor) except -1
    cdef void shut(self)
    cdef void give_back(self)
    cdef int open_again(self) except -1
    cdef int accept_some(self, Listening listening) except -1
    cdef int admit(self, Listening listening, int fd, object ip, int port) except -1
    cdef void watch(self, Listening listening, uint32_t interest)
    cdef void put_off(self, Listening listening)
    cdef void shed_some(self, Listening listening)
