cimport cython


@cython.final
cdef class Tenant:
    cdef public long long messages, bytes, max_messages, max_bytes

    cpdef bint has_room(self, long long messages, long long size_bytes) except -1
