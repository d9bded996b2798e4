cimport cython

from iothub.engine.outbox cimport StoredPublish


@cython.final
cdef class Sources:
    cdef dict _sources

    cpdef object enter(self, StoredPublish publish)
