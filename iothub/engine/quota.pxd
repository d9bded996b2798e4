cimport cython

from iothub.engine.state cimport Connection, Session, TenantPlane
from iothub.engine.turn cimport Turn

cdef int PAUSES_PUBLISHERS


@cython.final
cdef class Gate:
    cdef public Turn turn

    @cython.locals(now=double, wait=double, bit=int)
    cpdef double admit(self, Connection connection, Session session, TenantPlane tenant, Py_ssize_t size) except? -1.0
    @cython.locals(now=double)
    cpdef bint may_wait(self, Connection connection, TenantPlane tenant, double wait) except -1
    cpdef object forget(self, Connection connection)
    @cython.locals(turn=Turn, tenant=TenantPlane)
    cpdef bint must_wait_for_store(self, Connection connection, bint needs_store) except -1
    cdef bint _is_behind(self, TenantPlane tenant) except -1
    @cython.locals(turn=Turn, tenant=TenantPlane)
    cdef bint _waits_for_disk(self, Connection connection) except -1
    @cython.locals(turn=Turn, tenant=TenantPlane)
    cpdef bint may_go_on(self, Connection connection) except -1
