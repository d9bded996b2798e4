cimport cython


@cython.final
cdef class Names:
    cdef list _packed
    cdef bytes _queue, _tenant
    cdef readonly bytes due, life, owner, probe, tenants

    @cython.locals(digits=bytes)
    cpdef bytes packed_keys(self, long long queue_id)
