cimport cython

from iothub.engine.state cimport Connection, Session
from iothub_tenants.broker.broker cimport TenantBroker
from iothub_tenants.broker.client_contexts cimport ClientContext


@cython.final
cdef class PendingConnect:
    cdef public object packet, login, policy, client_id
    cdef public TenantBroker broker
    cdef public bint is_assigned


cdef object _decode(int header, bytes body)
cdef object _take_connect_rate(TenantBroker broker)
cdef PendingConnect _check_connect(
    object hub, Connection connection, object packet, object client_id, object login, TenantBroker broker
)
@cython.locals(is_known=bint)
cdef object _check_client_id(PendingConnect pending)
cdef long long _size(Py_ssize_t body_bytes)
cdef object _check_size(PendingConnect pending, long long size_bytes)
@cython.locals(context=ClientContext, broker=TenantBroker, session=Session)
cdef object _admit_client(object hub, Connection connection, PendingConnect pending, object request, object opened)
cdef object _request(PendingConnect pending)
cdef bint _is_connack_too_large(
    object hub, Connection connection, PendingConnect pending, object request
) except -1
cdef object _connack(
    PendingConnect pending, object request, object settings, bint is_present, object exchange
)
