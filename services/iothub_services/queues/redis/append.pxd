cimport cython

from iothub_services.queues.redis.messages cimport AppendCall, Encoder
from iothub_services.queues.remote.rounds cimport Rounds
from iothub_services.queues.remote.shares cimport Operation, Share
from iothub_services.queues.remote.tenant cimport RemoteQueue

cdef int _GONE


cdef class Appending(Rounds):
    cdef object _sender, _names, _clock, _sequence, _on_missed, _on_back
    cdef Encoder _encoder
    cdef dict _hints, _settled

    cpdef Operation _new_operation(self, RemoteQueue known)
    @cython.locals(call=AppendCall)
    cpdef object _encode(self, Operation operation, tuple room)
    @cython.locals(call=AppendCall, calls=list, outcomes=list, hinting=list, count=Py_ssize_t, at=Py_ssize_t)
    cpdef list _send(self, list ahead, list operations)
    @cython.locals(call=AppendCall)
    cpdef object _on_outcome(self, Operation operation, object answer)
