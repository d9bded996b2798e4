cimport cython

cdef extern from *:
    ctypedef bint flag "_Bool"  # a truth in one byte: these are many


@cython.final
cdef class ClientContext:
    cdef public object broker, session, device, token, exchange, leaving
    cdef public int awaiting_peers
    cdef public flag is_counted

    cpdef object forget_will(self)
    cpdef object attach(self, object session, object login)
    cpdef object prove(self, object login)
    cpdef object detach(self, object reason)
