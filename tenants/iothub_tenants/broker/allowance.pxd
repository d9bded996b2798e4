cimport cython

from iothub.engine.state cimport Session, TenantPlane
from iothub_services.quota.ledger cimport LocalLedger
from iothub_tenants.broker.connection_time cimport ConnectionTime


@cython.final
cdef class ConnectReservation:
    cdef public object client_id
    cdef public bint is_new, takes_over


@cython.final
cdef class Allowance:
    cdef public TenantPlane plane
    cdef public dict own
    cdef public object limits, rates
    cdef public LocalLedger ledger
    cdef public ConnectionTime connection_time
    cdef public object _shared
    cdef object _observer, _record, _backlog_bytes
    cdef dict _resolved
    cdef set _taken_over

    cpdef object limits_of(self, object device)
    cpdef object note_device(self, object device)
    cpdef bint take_rate(self, object quota, long long units=*) except -1
    cpdef object session_moved(self, Session session)
    @cython.locals(present=Session, reservation=ConnectReservation)
    cpdef object reserve_connect(self, object client_id, bint has_place, bint is_persistent)
    cpdef object settle_connect(self, ConnectReservation reservation, Session session)
    cpdef object release_connection(self)
    cpdef object release_session(self, Session session)
    cpdef object set_device_meters(self, Session session, object device)
    cdef object _remove_device_meters(self, Session session)
