cimport cython

from iothub.engine.message cimport Message, copy_of
from iothub.engine.outbound cimport Outbound
from iothub.engine.outbox cimport StoredPublish, target_of
from iothub.engine.publishing cimport Publishing
from iothub.engine.router cimport Subscription
from iothub.engine.state cimport Connection, Session
from iothub.engine.turn cimport Turn


@cython.final
cdef class Replay:
    cdef public Session session
    cdef public Subscription subscription
    cdef public object pages, overtaken, then
    cdef public list messages
    cdef public Py_ssize_t index
    cdef public bint is_over


@cython.final
cdef class Replays:
    cdef public Turn turn
    cdef public Publishing publishing
    cdef public Outbound outbound
    cdef public dict queues

    cpdef object send(self, Session session, Subscription subscription, Message message)
    @cython.locals(qos=int)
    cdef object _send(self, Session session, Message message, int granted, tuple identifiers)
    @cython.locals(
        session=Session, messages=list, subscription=Subscription, granted=int, identifiers=tuple, turn=Turn, most=Py_ssize_t, left=Py_ssize_t,
        index=Py_ssize_t, connection=Connection, message=Message,
    )
    cdef bint _slice(self, Replay replay) except -1


cdef tuple _identifiers(Subscription subscription)
