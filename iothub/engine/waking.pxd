cimport cython

cdef double _SUSPENDED_S


@cython.final
cdef class WakingClock:
    cdef public object wall
    cdef object _monotonic, _boottime, _on_woken
    cdef double _asleep_s

    @cython.locals(now=double, asleep_s=double)
    cpdef double monotonic(self) except? -1.0
