cimport cython

from iothub.engine.answers cimport Answers
from iothub.engine.counters cimport Counters
from iothub.engine.distribute cimport Distribution
from iothub.engine.filters cimport check_topic_name
from iothub.engine.message cimport Message, blocks, received
from iothub.engine.outbox cimport StoredPublish, stored_publish
from iothub.engine.quota cimport Gate
from iothub.engine.router cimport Group, Route, Target
from iothub.engine.state cimport AckSlot, Connection, Session, TenantPlane, ack_slot
from iothub.engine.turn cimport Turn
from iothub.engine.wire cimport Wire

cdef int FINISHING, FREE, ROUTED, STORING, UNSTORED, _ADMITTED, _BLOCKED, _REFUSED
cdef double RATE
cdef list _ID_ENDS
cdef int RUN


@cython.final
cdef class Publishing:
    cdef public Turn turn
    cdef public object wheel, message_ids
    cdef public Wire wire
    cdef public Distribution distribution
    cdef public Answers answers
    cdef public Gate gate
    cdef bytes _id_head
    cdef double _id_time
    cdef int _next_id, _end_id

    cpdef object pause(self, Connection connection)
    cpdef object fail(self, Connection connection, int code)
    cpdef object exceed(self, Connection connection, int code, object limit)
    @cython.locals(wire=Wire, session=Session, tenant=TenantPlane, code=int, qos=int, known=int, wait=double)
    cpdef bint publish(self, Connection connection, bytes data, Py_ssize_t at, Py_ssize_t length, int header) except -1
    cdef bint _is_full(self, Connection connection) except -1
    @cython.locals(wire=Wire, topic=bytes, alias=int, aliases=dict, known=bytes, code=int)
    cdef int _resolve_topic(self, Connection connection, TenantPlane tenant) except -1
    @cython.locals(wire=Wire, qos=int, retain=bint, route=Route, turn=Turn, verdict=int, message=Message, view="const unsigned char*")
    cdef bint _route(
        self, Connection connection, Session session, TenantPlane tenant, bytes data, Py_ssize_t at, Py_ssize_t length, int header
    ) except -1
    @cython.locals(packet_id=int, distribution=Distribution, queued=list, retain=bint, code=int)
    cdef object _give(self, Connection connection, Session session, TenantPlane tenant, Message message, Route route, int qos)
    @cython.locals(queues=Py_ssize_t, needs_store=bint, gate=Gate, wait=double)
    cdef int _admit_to_store(
        self, Connection connection, Session session, TenantPlane tenant, Route route, int qos, bint retain
    ) except -1
    @cython.locals(count=Py_ssize_t, gate=Gate, size=Py_ssize_t, bit=int, units=Py_ssize_t, wait=double)
    cdef int _admit_to_sinks(
        self, Connection connection, Session session, TenantPlane tenant, Route route, int qos
    ) except -1
    @cython.locals(count=Py_ssize_t, target=Target, session=Session, group=Group)
    cdef Py_ssize_t _count_sinks(self, Connection connection, Route route, int qos) except -2
    cdef object _wait_for(self, Connection connection, object sink)
    cdef object _keep_frame(self, Connection connection, Message message, bytes frame)
    @cython.locals(counters=Counters, own=Counters)
    cdef object _count(self, TenantPlane tenant, Message message, int qos)
    @cython.locals(wire=Wire, expires_at=double)
    cdef Message _message(self, Session session, int qos, bint retain)
    @cython.locals(count=Py_ssize_t, target=Target, session=Session, group=Group)
    cdef Py_ssize_t _count_queues(self, Route route, int qos) except -1
    @cython.locals(wire=Wire, message=Message, queued=list, route=Route)
    cdef bint _publish_again(self, Connection connection, Session session, TenantPlane tenant, int known) except -1
    @cython.locals(slot=AckSlot)
    cdef bint _is_pending(self, Connection connection, int packet_id) except -1
    @cython.locals(publish=StoredPublish, slot=AckSlot)
    cdef object _store(
        self, Connection connection, Session session, TenantPlane tenant, Message message, list queued, bint retain,
        int packet_id, int qos, int code,
    )
    @cython.locals(turn=Turn, message=Message)
    cpdef object append(self, StoredPublish publish)
    @cython.locals(number=int)
    cdef bytes _message_id(self)
    cdef object _refuse_quota(self, Connection connection, Session session, TenantPlane tenant, int qos, bint is_rate)
    @cython.locals(packet_id=int, slot=AckSlot)
    cdef object _refuse(self, Connection connection, Session session, int qos, int code)
    cdef object _refuse_unstored(self, Connection connection, Session session, TenantPlane tenant, int qos)
    cdef object _deny(self, Connection connection, Session session, TenantPlane tenant, int qos)
    cdef object _block(self, Connection connection, double wait)
    cdef object _starve(self, Connection connection)
