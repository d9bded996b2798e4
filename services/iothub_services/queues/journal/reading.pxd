cimport cython


cdef long long _NEAR_BYTES, _RUN_BYTES


@cython.final
@cython.freelist(128)
cdef class Wanted:
    cdef public long long position, expires_at_ms, segment, body, size, identifiers
    cdef public int qos, flags, how_many


@cython.locals(first=Wanted, last=Wanted, each=Wanted, index=Py_ssize_t, between="long long")
cpdef Py_ssize_t run_end(list wanted, Py_ssize_t start) except -1
cdef long long _begin(Wanted each) except -1
@cython.locals(records=list, each=Wanted, last=Wanted, segment="long long", start="long long", data=bytes, index=Py_ssize_t, body_at=Py_ssize_t,
               identifiers=tuple, body=bytes)
cpdef list read_run(list wanted, Py_ssize_t first, Py_ssize_t end, object read_at)
cdef tuple _identifiers(Wanted each, bytes data, long long start, object read_at)
