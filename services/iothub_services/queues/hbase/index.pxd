cimport cython

from iothub_services.queues.remote.tenant cimport Tenant


@cython.final
cdef class KnownQueue:
    cdef public Tenant tenant
    cdef public object queue_id, tenant_id
    cdef public object key
    cdef public long long messages, bytes

    @cython.locals(tenant=Tenant)
    cpdef object holds(self, long long messages, long long size_bytes)


@cython.final
cdef class QueueIndex:
    cdef object _caller, _table, _queues_table, _cell
    cdef dict _known, _tenants

    cpdef KnownQueue get(self, object queue_id)
