cdef class LocalLedger:
    cdef public object _tenant_id, _observer, _limits
    cdef public dict _bounds, _used

    cpdef bint reserve(self, object quota, long long count=*, object subject=*) except -1
    cpdef bint fits(self, object quota, long long count=*, object subject=*) except -1
    cpdef object release(self, object quota, long long count=*, object subject=*)
    cpdef object restore(self, object quota, long long count, object subject=*)
    cpdef long long used(self, object quota, object subject=*) except -1
    cpdef object set_limits(self, object limits)
    cpdef object _keep(self, object quota, object subject, long long used)
