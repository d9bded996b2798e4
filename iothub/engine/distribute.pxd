cimport cython

from iothub.engine.message cimport Message
from iothub.engine.outbound cimport Outbound
from iothub.engine.outbox cimport QueueTarget, target_of
from iothub.engine.router cimport Group, Route, Subscription, Target, without_no_local
from iothub.engine.state cimport Connection, Session, TenantPlane
from iothub.engine.turn cimport Turn


cdef int _MANY, ABSENT, CONGESTED, READY


@cython.final
cdef class Slices:
    cdef public list messages, targets
    cdef public Py_ssize_t at


@cython.final
cdef class Distribution:
    cdef public Turn turn
    cdef public Outbound outbound
    cdef public Py_ssize_t direct, receivers, allowed, slice, budget, spent
    cdef bint skip_direct
    cdef public bint are_members_full

    @cython.locals(queued=list, target=Target, group=Group, subscription=Subscription)
    cpdef list distribute(self, TenantPlane tenant, Message message, Route route, bint skip_direct)
    @cython.locals(payload=Py_ssize_t)
    cdef bint _begin(self, TenantPlane tenant, Message message, Py_ssize_t count, bint skip_direct) except -1
    @cython.locals(left_out=Py_ssize_t)
    cdef object _finish(self, TenantPlane tenant, Message message)
    @cython.locals(message=Message, retained=list, topic=bytes, route=Route)
    cpdef list distribute_frame(self, TenantPlane tenant, list messages)
    @cython.locals(lines_up=bint, direct=list, target=Target, rest=Target, qos=int, retain=bint)
    cpdef object distribute_arrived(self, TenantPlane tenant, Message message, Route route)
    @cython.locals(session=Session, rest=Target)
    cdef Target _part_arrived(self, Message message, Target target)
    cdef object _join_arrived(self, TenantPlane tenant, Message message, list direct)
    @cython.locals(direct=list, queued=list, target=Target, session=Session, qos=int, rest=Target)
    cdef list _line_up(self, TenantPlane tenant, Message message, Route route)
    @cython.locals(waiting=list, last=Slices)
    cdef object _join(self, TenantPlane tenant, Message message, list direct)
    @cython.locals(
        slicing=list, tenant=TenantPlane, left=Py_ssize_t, waiting=list, first=Slices, count=Py_ssize_t, end=Py_ssize_t,
        message=Message,
    )
    cpdef object go_on(self)
    @cython.locals(messages=list, targets=list, target=Target, message=Message, qos=int, retain=bint)
    cdef object _serve(self, TenantPlane tenant, Slices slices, Py_ssize_t end)
    @cython.locals(group=Group, subscription=Subscription)
    cpdef list redistribute(self, TenantPlane tenant, Message message, bytes name, bytes filter, bint is_durable)
    cdef bint _stores_qos0(self, Session session, Group group) except -1
    @cython.locals(persistent=list, online=list)
    cdef Subscription _storing(self, Group group, Message message)
    @cython.locals(session=Session, rest=Target, qos=int, retain=bint)
    cdef list _give(self, TenantPlane tenant, Message message, Target target, list queued)
    @cython.locals(session=Session)
    cdef object _give_peer(self, TenantPlane tenant, Message message, Target target)
    @cython.locals(qos=int, retain=bint, identifiers=tuple)
    cdef list _give_member(self, TenantPlane tenant, Message message, Group group, Subscription subscription, list queued)
    cdef list _give_session(
        self, TenantPlane tenant, Message message, Session session, int qos, bint retain, tuple identifiers, Group group, list queued
    )
    @cython.locals(
        members=list, count=Py_ssize_t, congested=Subscription, step=Py_ssize_t, index=Py_ssize_t, subscription=Subscription,
        session=Session, connection=Connection, elsewhere=Subscription, congested_elsewhere=Subscription,
        behind=Py_ssize_t, readiness=int, are_all_here=bint,
    )
    cpdef Subscription choose(self, Group group, Message message)
    @cython.locals(readiness=int)
    cdef int _readiness_elsewhere(self, Session session, Subscription subscription, Message message) except -1
    @cython.locals(subscription=Subscription, session=Session)
    cpdef object full_peer(self, Group group, int qos)
    @cython.locals(group=Group)
    cpdef Subscription member_here(self, TenantPlane tenant, Message message, bytes name, bytes filter)
    @cython.locals(
        members=list, count=Py_ssize_t, congested=Subscription, step=Py_ssize_t, index=Py_ssize_t, subscription=Subscription,
        session=Session, connection=Connection,
    )
    cdef Subscription _choose_here(self, Group group, Message message)
    @cython.locals(qos=int, retain=bint, identifiers=tuple)
    cpdef bint give_here(self, Subscription subscription, Message message, object arrival) except -1


cdef Subscription _by_publisher(list members, Message message)
