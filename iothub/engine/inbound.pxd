cimport cython

from iothub.engine.connection cimport Connection
from iothub.engine.counters cimport Counters
from iothub.engine.distribute cimport Distribution
from iothub.engine.message cimport Message
from iothub.engine.outbound cimport Outbound
from iothub.engine.outbox cimport AckSlot, StoredPublish
from iothub.engine.quota cimport Gate
from iothub.engine.router cimport Route, Target
from iothub.engine.session cimport Session
from iothub.engine.tenant cimport TenantPlane
from iothub.engine.turn cimport Turn
from iothub.engine.wire cimport Wire


@cython.final
cdef class Inbound:
    cdef public Turn turn
    cdef public object wheel, control, message_ids
    cdef public Outbound outbound
    cdef public Distribution distribution
    cdef public Wire wire
    cdef public Gate gate

    @cython.locals(turn=Turn, partial=bytearray)
    cpdef object feed(self, Connection connection, bytes data)
    @cython.locals(partial=bytearray)
    cpdef object parse(self, Connection connection)
    @cython.locals(at=Py_ssize_t, end=Py_ssize_t, needed=Py_ssize_t, wire=Wire, header=int, length=Py_ssize_t)
    cpdef object walk(self, Connection connection, bytes data)
    cdef bint _is_expected(self, Connection connection, int header) except -1
    @cython.locals(kind=int, wire=Wire, body=Py_ssize_t, code=int, tenant=TenantPlane, limit=int)
    cdef object _packet(self, Connection connection, bytes data, Py_ssize_t at, Py_ssize_t length, int header)
    cdef object _to_control(self, Connection connection, int header, bytes body)
    cdef object _keep_more(self, Connection connection, bytes data)
    cpdef object pause(self, Connection connection)
    cpdef object fail(self, Connection connection, int code)
    @cython.locals(wire=Wire, session=Session, tenant=TenantPlane, code=int, qos=int, known=int, verdict=int)
    cdef bint _publish(self, Connection connection, bytes data, Py_ssize_t at, Py_ssize_t length, int header) except -1
    @cython.locals(wire=Wire, topic=bytes, alias=int, aliases=dict, known=bytes, code=int)
    cdef int _resolve_topic(self, Connection connection, TenantPlane tenant) except -1
    @cython.locals(
        wire=Wire, qos=int, retain=bint, route=Route, gate=Gate, turn=Turn, queues=Py_ssize_t, needs_store=bint, wait=double,
        message=Message, frame=bytes, counters=Counters, packet_id=int, queued=list, receivers=Py_ssize_t, code=int,
    )
    cdef bint _route(
        self, Connection connection, Session session, TenantPlane tenant, bytes data, Py_ssize_t at, Py_ssize_t length, int header
    ) except -1
    @cython.locals(wire=Wire, expires_at=double)
    cdef Message _message(self, Session session, int qos, bint retain)
    @cython.locals(count=Py_ssize_t, target=Target, session=Session)
    cdef Py_ssize_t _count_queues(self, Route route, int qos) except -1
    @cython.locals(wire=Wire, message=Message, queued=list)
    cdef object _publish_again(self, Connection connection, Session session, TenantPlane tenant, int known)
    @cython.locals(slot=AckSlot)
    cdef bint _is_pending(self, Connection connection, int packet_id) except -1
    @cython.locals(publish=StoredPublish, qos=int, slot=AckSlot)
    cdef object _store(
        self, Connection connection, Session session, TenantPlane tenant, Message message, list queued, bint retain,
        int packet_id, int code,
    )
    @cython.locals(turn=Turn, message=Message)
    cpdef object append(self, StoredPublish publish)
    @cython.locals(slot=AckSlot)
    cdef object _answer(self, Connection connection, int qos, int packet_id, int code)
    @cython.locals(pending=list, index=Py_ssize_t, count=Py_ssize_t, slot=AckSlot)
    cpdef object flush_answers(self, Connection connection)
    cdef object _refuse_quota(self, Connection connection, Session session, TenantPlane tenant, int qos, bint is_rate)
    cdef object _deny(self, Connection connection, Session session, TenantPlane tenant, int qos)
    cdef object _block(self, Connection connection, double wait)
    cdef object _starve(self, Connection connection)
    @cython.locals(session=Session, wire=Wire, packet_id=int, counters=Counters)
    cdef object _ack(self, Connection connection, int kind)
    @cython.locals(inbound=dict, known=int)
    cdef object _pubrel(self, Connection connection, Session session, int packet_id)
    cdef object _complete(self, Connection connection, int packet_id)
    @cython.locals(inbound=dict)
    cpdef object finished(self, Session session, int packet_id)
