cimport cython

from iothub.engine.outbox cimport StoredPublish
from iothub_services.group_thread cimport Source, Waiting
from iothub_services.queues.conversions cimport append_of, inbound_of, is_appended_once
from iothub_services.queues.encoder cimport body_of, body_size  # in the place of the plain ones


cdef class AppendOperation(Waiting):
    cdef public StoredPublish publish
    cdef public bytes made_body, message_id
    cdef public object inbound
    cdef object _append

    cpdef object set(self, StoredPublish publish, bytes body, Source source)
    cpdef object as_append(self)
