cimport cython


@cython.final
cdef class Regions:
    cdef object _caller, _table, _damage
    cdef public Py_ssize_t request_bytes
    cdef list _starts
    cdef public set failing

    cpdef list send_steps(self, object steps)
    @cython.locals(outcomes=list, at=Py_ssize_t, part=list, results=object)
    cdef list _send(self, object steps, object chosen, list outcomes)
    @cython.locals(starts=list, by_region=dict, group=list, at=Py_ssize_t)
    cdef list _parts(self, object steps, object chosen)
    @cython.locals(at=Py_ssize_t, size_bytes=Py_ssize_t, size=Py_ssize_t)
    cdef list _bounded(self, object steps, list group)
