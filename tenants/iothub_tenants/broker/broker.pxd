cimport cython

from iothub.engine.state cimport Connection, Session, TenantPlane
from iothub_tenants.broker.allowance cimport Allowance


@cython.final
cdef class TenantBroker:
    cdef public object tenant_id, record, retained
    cdef public TenantPlane plane
    cdef public Allowance allowance
    cdef dict _sinks
    cdef bint _has_streams
    cdef public object _wills
    cdef object _shared, _queue_ids, _past
    cdef object __weakref__

    cpdef object expiry_of(self, object device, object asked_s)
    cpdef object connection_settings(self, object mqtt, object device, object packet)
    @cython.locals(present=Session)
    cdef object _counted_connection(self, object client_id)
    cpdef object reserve_connect(self, object client, object request)
    cpdef object close_session(self, Session session, object reason, bint keeps_will, object expiry_s)
    cpdef object connected(self, Session session, Connection connection, object packet)
    cpdef object session_began(self, Session session, object device)
    cpdef object session_ended(self, Session session)
    cdef object _now_ms(self)
