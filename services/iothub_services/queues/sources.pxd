cimport cython

from iothub.engine.outbox cimport StoredPublish
from iothub_services.group_thread cimport Source


@cython.final
cdef class Sources:
    cdef dict _sources

    @cython.locals(source=Source)
    cpdef Source enter(self, StoredPublish publish)
    @cython.locals(is_over=bint)
    cpdef object leave(self, StoredPublish publish, Source source, bint is_failed)
