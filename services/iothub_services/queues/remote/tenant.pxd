cimport cython


@cython.final
cdef class Tenant:
    cdef public long long messages, bytes, max_messages, max_bytes

    cpdef bint has_room(self, long long messages, long long size_bytes) except -1


cdef class RemoteQueue:
    cdef public Tenant tenant
    cdef public object queue_id, tenant_id
    cdef public long long messages, bytes

    @cython.locals(tenant=Tenant)
    cpdef object holds(self, long long messages, long long size_bytes)
