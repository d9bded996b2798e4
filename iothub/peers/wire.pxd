cimport cython


@cython.final
cdef class PeerConnection:
    cdef public object address, certified_node, tenant, session
    cdef public bytearray out, partial
    cdef object _on_refused, _tls, _owner
    cdef readonly object _channel
    cdef bint _is_closed, _is_heard
    cdef object __weakref__

    cpdef object write(self, bytes data)
    cpdef Py_ssize_t unsent(self) except -1
    cpdef object feed(self, bytes data)
