cimport cython

from iothub.engine.state cimport Connection, Session
from iothub_tenants.broker.client_contexts cimport ClientContext


@cython.final
cdef class ControlPlane:
    cdef object _hub
    cdef public object connect_timeouts

    cpdef object opened(self, Connection connection)
    cpdef object packet(self, Connection connection, int header, bytes body)
    @cython.locals(context=ClientContext)
    cpdef object closed(self, Connection connection, object reason)
    @cython.locals(session=Session)
    cdef object _log_end(self, Connection connection, object reason)
