cimport cython

from iothub_services.queues.remote.tenant cimport RemoteQueue, Tenant


@cython.final
cdef class KnownQueue(RemoteQueue):
    cdef public object key


@cython.final
cdef class QueueIndex:
    cdef object _caller, _table, _queues_table, _cell
    cdef dict _known, _tenants

    cpdef KnownQueue get(self, object queue_id)
