cimport cython

from iothub_services.queues.operations cimport AppendOperation


@cython.final
cdef class QueueWrites:
    cdef object _store, _write, _write_operations, _append_operations

    @cython.locals(answers=list, start=Py_ssize_t, index=Py_ssize_t)
    cpdef list _all(self, list ops)
    @cython.locals(moves=list, appends=list, moved=list, appended=list, index=Py_ssize_t, at_move=Py_ssize_t, at_append=Py_ssize_t)
    cdef object _run(self, list ops, list answers, Py_ssize_t start, Py_ssize_t end)
    cdef list _append(self, list appends)
