cimport cython

from iothub_services.queues.hbase.index cimport KnownQueue
from iothub_services.queues.remote.shares cimport Item, Operation, Share


@cython.final
cdef class Heads:
    cdef bytes _head
    cdef int _qos, _flags
    cdef Py_ssize_t _size
    cdef long long _expires_at_ms
    cdef bint _is_apart

    @cython.locals(qos=int, flags=int, is_apart=bint)
    cpdef bytes of(self, Item item, Share share)


@cython.final
@cython.no_gc
cdef class AppendCall(Operation):
    cdef public tuple step

    @cython.locals(known=KnownQueue, item=Item, share=Share, records=list, is_settled_later=bint)
    cpdef object encode(self, object writer, object sequence, tuple room, Heads heads, tuple settled)
    @cython.locals(first="long long", messages="long long", size_bytes="long long")
    cpdef object on_answer(self, bytes octets)
    @cython.locals(share=Share, shares=list)
    cpdef object _on_result(self, object result)


@cython.locals(is_apart=bint, head=bytes)
cdef bytes _sized(object qos, object flags, object identifiers, object message_id, Item item)
