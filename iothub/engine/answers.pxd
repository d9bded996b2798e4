cimport cython

from iothub.engine.emission cimport Emission
from iothub.engine.state cimport AckSlot, Connection, Session, ack_slot
from iothub.engine.turn cimport Turn

cdef int FINISHING, FREE, OWED, REFUSED, UNSTORED


@cython.final
cdef class Answers:
    cdef public Turn turn
    cdef public Emission emission

    @cython.locals(slot=AckSlot)
    cpdef object answer(self, Connection connection, int qos, int packet_id, int code)
    @cython.locals(answered=list)
    cpdef object flush(self, Connection connection)
    @cython.locals(connection=Connection)
    cpdef object release(self)
    @cython.locals(pending=list, index=Py_ssize_t, count=Py_ssize_t, slot=AckSlot)
    cdef object _send_known(self, Connection connection)
    @cython.locals(inbound=dict, known=int)
    cpdef object pubrel(self, Connection connection, Session session, int packet_id)
    cdef object _complete(self, Connection connection, int packet_id)
    @cython.locals(inbound=dict, known=int)
    cpdef object finished(self, Session session, int packet_id)
    cpdef object refuse_later(self, Session session, AckSlot slot, int code)
    @cython.locals(inbound=dict, connection=Connection, slot=AckSlot)
    cdef object _refuse(self, Session session, int packet_id)
