cimport cython

from iothub.engine.message cimport Message
from iothub.engine.state cimport AckSlot, Session, TenantPlane


@cython.final
@cython.freelist(256)
cdef class QueueTarget:
    cdef public Session session
    cdef public long long queue_id
    cdef public int qos
    cdef public bint retain, is_shared
    cdef public tuple identifiers

    cpdef int flags(self) except -1


@cython.locals(target=QueueTarget)
cpdef QueueTarget target_of(Session session, int qos, bint retain, tuple identifiers, bint is_shared)


@cython.final
@cython.freelist(256)
cdef class StoredPublish:
    cdef public TenantPlane tenant
    cdef public Message message
    cdef public list targets
    cdef public bint retain, has_direct, is_repeat, is_repeatable
    cdef public object inbound, publisher, connection, on_done, record
    cdef public long long inbound_epoch
    cdef public int packet_id, code
    cdef public AckSlot slot


@cython.locals(publish=StoredPublish)
cpdef StoredPublish stored_publish(
    TenantPlane tenant, Message message, list targets, bint retain, Session session, int packet_id
)


cdef class PublishStore:
    cpdef object append(self, StoredPublish publish)


cpdef PublishStore without_sinks(object store)
