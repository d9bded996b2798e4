cimport cython

from iothub.engine.routed cimport RoutedBatch

cdef object _PUBLISH


cdef class LinkBatch(RoutedBatch):
    cdef public object link
    cdef public bint has_more

    cpdef object flush(self)
    cpdef object flush_more(self)
    @cython.locals(body=bytes)
    cpdef object flush_messages(self)
    cpdef object note_load(self)
    cpdef object drop(self, bytes body, object reason)
    cpdef object set_full(self, bint is_full)
