cimport cython


@cython.final
cdef class ConnectionTime:
    cdef object _clock
    cdef long long _connections
    cdef double _held_s, _since

    cpdef object on_reserved(self)
    cpdef object on_released(self)
    @cython.locals(now=double)
    cdef object _advance(self, long long change)
