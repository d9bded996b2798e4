cimport cython


cpdef int packet_id_of(long long position) except -1


@cython.final
cdef class Window:
    cdef public int limit, in_flight
    cdef public bint is_durable
    cdef public long long base, taken, durable_head, asked_head, reserved, asked_reserved, sent_upto
    cdef public bytearray states
    cdef public dict released
    cdef public set done

    cpdef bint has_room(self) except -1
    cpdef bint is_within_span(self) except -1
    cpdef int send(self, int qos) except -1
    cpdef object skip(self)
    cpdef object take_released(self)
    cpdef bint is_released(self, long long position) except -1
    cpdef bint is_done(self, long long position) except -1
    @cython.locals(first="long long", position="long long")
    cpdef Py_ssize_t find(self, int packet_id) except -1
    cpdef int state(self, long long position) except -1
    cpdef object set_state(self, long long position, int state)
    @cython.locals(states=bytearray, index=Py_ssize_t, end=Py_ssize_t)
    cpdef object complete(self, long long position)
