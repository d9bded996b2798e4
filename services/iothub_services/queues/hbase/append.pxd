cimport cython

from iothub_services.queues.hbase.shares cimport AppendCall, Heads
from iothub_services.queues.remote.rounds cimport Rounds
from iothub_services.queues.remote.shares cimport Item, Operation, Share
from iothub_services.queues.remote.tenant cimport RemoteQueue

cdef int _GONE, _DONE
cdef Py_ssize_t FEW, LARGE_BYTES


cdef class Appending(Rounds):
    cdef object _regions, _bodies, _writer, _sequence
    cdef Heads _heads
    cdef object _last
    cdef tuple _settled

    cpdef object route(self, object items, object ahead=*)
    @cython.locals(item=Item)
    cpdef object put_bodies(self, object items)
    @cython.locals(item=Item, share=Share, count=Py_ssize_t)
    cpdef Item _begun(self, object op)
    cpdef Operation _new_operation(self, RemoteQueue known)
    @cython.locals(call=AppendCall)
    cpdef object _encode(self, Operation operation, tuple room)
    @cython.locals(call=AppendCall, steps=list)
    cpdef list _send(self, list ahead, list operations)
    @cython.locals(call=AppendCall, status=int, octets=bytes)
    cpdef object _on_outcome(self, Operation operation, object outcome)
