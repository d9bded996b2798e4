cimport cython

from iothub.engine.message cimport Message
from iothub.engine.state cimport AckSlot, TenantPlane


@cython.final
cdef class QueueTarget:
    cdef public object session
    cdef public int qos
    cdef public bint retain, is_shared
    cdef public tuple identifiers

    cpdef int flags(self) except -1


@cython.final
cdef class StoredPublish:
    cdef public TenantPlane tenant
    cdef public Message message
    cdef public list targets
    cdef public bint retain, has_direct, is_repeat, is_repeatable
    cdef public object inbound, publisher, connection, on_done, record
    cdef public long long inbound_epoch
    cdef public int packet_id, code
    cdef public AckSlot slot
