cimport cython

from iothub_services.queues.redis.index cimport KnownQueue, QueueIndex


@cython.final
cdef class Moving:
    cdef QueueIndex _index
    cdef object _sender
    cdef list _known, _readers
    cdef set _done
    cdef public list asked

    @cython.locals(errors=list, at=Py_ssize_t, known=KnownQueue)
    cpdef list take(self, object outcomes)
