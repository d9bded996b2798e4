cimport cython

from iothub.engine.counters cimport Counters
from iothub.engine.router cimport Router


@cython.final
cdef class TenantPlane:
    cdef public long long tenant_id, buffered_bytes, connections, sliced
    cdef public list slices
    cdef public object name
    cdef object _limits
    cdef public Py_ssize_t fanout, fanout_bytes
    cdef public int user_properties, sinks
    cdef public Router router
    cdef public Counters counters
    cdef public dict sessions
    cdef public object inbound_messages, inbound_bytes, outbound_messages, outbound_bytes
    cdef public object day_messages, day_bytes, persistent_fanout, sink_messages, sink_bytes
    cdef public object may_retain, publish_hook, deliver_hook, control, share
