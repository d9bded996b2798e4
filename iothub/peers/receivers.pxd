cimport cython


@cython.final
cdef class Receivers:
    cdef public dict by_type
