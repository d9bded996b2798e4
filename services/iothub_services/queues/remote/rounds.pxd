cimport cython

from iothub.engine.outbox cimport QueueTarget
from iothub_services.queues.operations cimport AppendOperation
from iothub_services.queues.remote.shares cimport Item, Operation, Share, item_of, share_of
from iothub_services.queues.remote.tenant cimport RemoteQueue, Tenant

cdef Tenant _NOBODY


cdef class Rounds:
    cdef object _index
    cdef Py_ssize_t _most, _most_bytes
    cdef dict _open
    cdef public object repeats

    @cython.locals(item=Item, found=list, size_bytes=Py_ssize_t)
    cpdef list items(self, object batch)
    @cython.locals(waiting=list, operations=list, outcomes=list, errors=list, asked=list, at=Py_ssize_t, is_alone=bint)
    cpdef object route(self, object items, object ahead=*)
    cpdef Operation _new_operation(self, RemoteQueue known)
    cpdef object _encode(self, Operation operation, tuple room)
    cpdef list _send(self, list ahead, list operations)
    cpdef object _on_outcome(self, Operation operation, object outcome)
    @cython.locals(operation=AppendOperation, target=QueueTarget, unknown=list)
    cdef object _find_unknown(self, object batch)
    @cython.locals(item=Item, operation=AppendOperation, target=QueueTarget, shares=list)
    cpdef Item _begun(self, object op)
    @cython.locals(
        item=Item, share=Share, known=RemoteQueue, operation=Operation, chosen=Operation, old=dict, new=dict, rooms=dict, is_any_open=bint,
    )
    cdef list _round(self, list items)
    @cython.locals(item=Item, share=Share, tenant=Tenant, operation=Operation, sums=dict, taken=list)
    cdef dict _rooms(self, list items)
    cdef object _settle(self, Operation operation, object outcome)


@cython.locals(item=Item, waiting=list)
cdef list _waiting(object items)
