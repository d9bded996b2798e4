cimport cython

from iothub.engine.plane cimport Plane
from iothub.engine.routed cimport decode_routed, tenant_of_routed
from iothub.engine.state cimport TenantPlane

cdef object _PUBLISH


cdef class ArrivedMessages:
    cdef public Plane _plane
    cdef public object _place_of
    cdef public dict _peers, _tenants
    cdef public list _observers

    cpdef object frame(self, object peer, object frame_type, bytes body)
    cpdef object _take_other(self, object sender, object frame_type, bytes body)
    @cython.locals(tenant=TenantPlane, topics=list, messages=list)
    cpdef object _take_messages(self, object sender, bytes body)


@cython.locals(
    at=Py_ssize_t, size=Py_ssize_t, tenant_id="long long", arrived=list, messages=list, tenant=TenantPlane,
)
cpdef list read_messages(bytes body, set opened, dict tenants)
