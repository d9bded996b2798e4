cimport cython

from iothub_services.queues.remote.tenant cimport RemoteQueue, Tenant


@cython.final
cdef class KnownQueue(RemoteQueue):
    cdef public long long tail


@cython.final
cdef class QueueIndex:
    cdef object _sender, _names
    cdef set _lost
    cdef dict _known, _tenants

    cpdef KnownQueue get(self, object queue_id)
