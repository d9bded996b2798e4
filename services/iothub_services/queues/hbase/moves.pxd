cimport cython

from iothub_services.queues.hbase.index cimport KnownQueue, QueueIndex

cdef int _DONE, _GONE


@cython.final
cdef class Moving:
    cdef QueueIndex _index
    cdef list _known, _readers
    cdef public list asked
    cdef public dict answers

    @cython.locals(errors=list, at=Py_ssize_t)
    cpdef list take(self, object outcomes)
    cdef object _answer(self, KnownQueue known, object result)
