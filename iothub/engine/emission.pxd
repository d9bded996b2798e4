cimport cython

from iothub.engine.counters cimport Counters
from iothub.engine.encode cimport (
    append_ack, assemble, frame_size, has_frame, identifier_at, own_properties, shared_frame,
)
from iothub.engine.frames cimport append_frame  # in the place of the plain one
from iothub.engine.message cimport Message, blocks
from iothub.engine.state cimport Connection, Session, TenantPlane
from iothub.engine.turn cimport Turn
from iothub.engine.window cimport Window

cdef int PUBACK


@cython.final
cdef class Emission:
    cdef public Turn turn

    @cython.locals(
        tenant=TenantPlane, turn=Turn, expiry="long long", left=double, frame=bytes, size=Py_ssize_t, out=bytearray,
        start=Py_ssize_t, header=int, is_v5=bint, at=Py_ssize_t,
    )
    cpdef bint emit(
        self, Session session, Connection connection, Message message, int qos, bint retain, tuple identifiers,
        bint may_have_been_sent,
    ) except -1
    @cython.locals(start=Py_ssize_t)
    cdef Py_ssize_t _append(self, bytearray out, bytes frame, int qos) except -1
    @cython.locals(window=Window, packet_id=int)
    cdef object _identify(self, Session session, bytearray out, Py_ssize_t at, int qos)
    @cython.locals(alias=int, topic=bytes, properties=bytes)
    cdef bytes _own_frame(self, Connection connection, Message message, bint is_identified, long long expiry, tuple identifiers)
    cdef bint _refuse(self, Session session, int qos, object reason) except -1
    @cython.locals(counters=Counters, own=Counters)
    cdef object _count(self, Session session, Message message, int qos, Py_ssize_t size)
    @cython.locals(aliases=dict, alias=int)
    cdef int _alias(self, Connection connection, bytes topic) except? -1
    @cython.locals(tenant=TenantPlane, now=double, size=Py_ssize_t, passed=int, bit=int)
    cpdef bint has_allowance(self, Session session, Message message) except -1
    @cython.locals(size=int)
    cpdef object send_ack(self, Connection connection, int header, int packet_id, int code)
    cpdef object send(self, Connection connection, bytes packet)
    @cython.locals(turn=Turn, counters=Counters, kind=int)
    cdef object _count_control(self, Connection connection, int header, Py_ssize_t size)
