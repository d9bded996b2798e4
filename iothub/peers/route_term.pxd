cimport cython


@cython.final
cdef class RouteTerm:
    cdef public double until
    cdef object _boottime, _may_longer
