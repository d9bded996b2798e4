cimport cython


@cython.final
cdef class ControlQueue:
    cdef public object control
    cdef public Py_ssize_t spent
    cdef double _allowance_until
    cdef dict _queues

    cpdef object put(self, object connection, int header, bytes body, double now)
    cpdef bint serve_next(self) except -1
    cpdef object take_late_connects(self, object is_late)
    cdef object _pass_on(self, object connection, int header, bytes body)
