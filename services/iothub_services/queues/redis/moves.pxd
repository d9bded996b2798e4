cimport cython

from iothub_services.queues.redis.index cimport KnownQueue, QueueIndex
from iothub_services.queues.redis.messages cimport packed_number
from iothub_services.queues.redis.names cimport Names


@cython.final
cdef class Moving:
    cdef QueueIndex _index
    cdef object _sender
    cdef list _known, _readers
    cdef set _done
    cdef public list asked

    @cython.locals(by_reader=dict, words=list, known=KnownQueue)
    cpdef object _ask(self, Names names, object sequence, long long now_ms, object moves)
    @cython.locals(errors=list, at=Py_ssize_t, known=KnownQueue)
    cpdef list take(self, object outcomes)
