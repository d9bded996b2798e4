cimport cython

from iothub_services.queues.hbase.index cimport KnownQueue, QueueIndex
from iothub_services.queues.remote.tenant cimport Tenant
from iothub_services.queues.hbase.shares cimport Heads, Item, Operation, Share


@cython.final
cdef class Appending:
    cdef QueueIndex _index
    cdef object _regions, _bodies, _writer, _sequence
    cdef dict _open
    cdef Heads _heads
    cdef object _last
    cdef tuple _settled
    cdef public object repeats

    @cython.locals(index=QueueIndex, item=Item, found=list, size_bytes=Py_ssize_t)
    cpdef list items(self, object batch)
    @cython.locals(item=Item, operation=Operation, waiting=list, operations=list)
    cpdef object route(self, object items)
    @cython.locals(item=Item, share=Share, shares=list, size=Py_ssize_t)
    cdef Item _begun(self, object op)
    @cython.locals(
        item=Item, share=Share, known=KnownQueue, operation=Operation, chosen=Operation, old=dict, new=dict, rooms=dict, is_any_open=bint,
        most_bytes=Py_ssize_t,
    )
    cdef list _round(self, list items)
    @cython.locals(item=Item, share=Share, tenant=Tenant, operation=Operation, sums=dict, taken=list)
    cdef dict _rooms(self, list items)
    cdef object _settle(self, Operation operation, object outcome)
    @cython.locals(share=Share)
    cdef object _on_outcome(self, Operation operation, int status, bytes octets)


@cython.locals(item=Item, share=Share, waiting=list)
cdef list _waiting(object items)
