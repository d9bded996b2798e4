cimport cython

from iothub.engine.answers cimport Answers
from iothub.engine.counters cimport Counters
from iothub.engine.emission cimport Emission
from iothub.engine.publishing cimport Publishing
from iothub.engine.receipts cimport Receipts
from iothub.engine.state cimport Connection, Session, TenantPlane
from iothub.engine.turn cimport Turn
from iothub.engine.wire cimport Wire

cdef int CONNECT, PUBLISH, PUBACK, PUBREC, PUBREL, PUBCOMP, PINGREQ, DISCONNECT, AUTH, NOT_OVERLOADED, ACCEPTS_NOBODY


@cython.final
cdef class Inbound:
    cdef public Turn turn
    cdef public object control_queue
    cdef public Publishing publishing
    cdef public Wire wire
    cdef public Answers answers
    cdef public Receipts receipts
    cdef public Emission emission

    @cython.locals(turn=Turn, partial=bytearray)
    cpdef object feed(self, Connection connection, bytes data)
    @cython.locals(partial=bytearray)
    cpdef object parse_kept(self, Connection connection)
    @cython.locals(at=Py_ssize_t, end=Py_ssize_t, needed=Py_ssize_t, wire=Wire, header=int, length=Py_ssize_t)
    cpdef object parse(self, Connection connection, bytes data)
    cdef object _check_begun(self, Connection connection, int header, Py_ssize_t length)
    @cython.locals(turn=Turn, tenant=TenantPlane, level=int, share=int, held="long long")
    cdef object _grow(self, Connection connection, Py_ssize_t size)
    @cython.locals(
        session=Session, partial=bytearray, kept=bytearray, data=bytes, at=Py_ssize_t, end=Py_ssize_t, length=Py_ssize_t, kind=int
    )
    cdef object _read_ahead(self, Connection connection)
    cdef bint _is_expected(self, Connection connection, int header) except -1
    @cython.locals(kind=int, wire=Wire, body=Py_ssize_t, code=int, tenant=TenantPlane, limit=int)
    cdef object _packet(self, Connection connection, bytes data, Py_ssize_t at, Py_ssize_t length, int header)
    cdef object _to_control(self, Connection connection, int header, bytes body)
    cdef object _keep_more(self, Connection connection, bytes data)
    cpdef object fail(self, Connection connection, int code)
    @cython.locals(session=Session, wire=Wire, packet_id=int, counters=Counters)
    cdef object _ack(self, Connection connection, int kind)
