cimport cython

cdef extern from *:
    ctypedef bint flag "_Bool"  # a truth in one byte: these are many


@cython.final
cdef class PackedSession:
    cdef public str device  # this and `filters` are of types that make no circles: no collector looks at these objects
    cdef public bytes filters
    cdef public long long queue_id, since_ms, announced
    cdef public unsigned int epoch, logged_epoch, claimed, device_id, expiry_s, identifier
    cdef public int holder
    cdef public unsigned short count
    cdef public unsigned char version, options
    cdef public flag is_online, is_counted


@cython.final
cdef class Sessions:
    cdef readonly dict awake, packed, woken
    cdef dict _wills
    cdef object _unpack

    cpdef object get(self, client_id)
    cpdef object wake(self, client_id)
