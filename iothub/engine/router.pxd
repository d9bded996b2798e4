cimport cython

from iothub.engine.routecache cimport Entry, RouteCache
from iothub.engine.trie cimport Trie

cdef extern from *:
    ctypedef bint flag "_Bool"  # a truth in one byte: these are many

cdef Py_ssize_t _TARGET_BYTES, _ROUTE_BYTES, _POINTER_BYTES
cdef int _UNKNOWN


@cython.final
cdef class Subscription:
    cdef readonly object session
    cdef readonly bytes filter, group
    cdef readonly unsigned int identifier
    cdef readonly unsigned char qos, retain_handling
    cdef readonly flag no_local, retain_as_published


@cython.final
cdef class Target:
    cdef readonly object session
    cdef readonly int qos
    cdef readonly bint retain_as_published, has_no_local
    cdef readonly tuple identifiers, subscriptions

    @cython.locals(subscription=Subscription, identifiers=list)
    cdef int _merge(self, Subscription first) except -1


cpdef Target without_no_local(Target target)


@cython.final
cdef class Group:
    cdef readonly bytes name, filter
    cdef public unsigned long long turn
    cdef public long long full_at
    cdef readonly list members
    cdef dict places
    cdef int persistent
    cdef list ordered

    @cython.locals(replaced=Subscription)
    cdef Subscription join(self, Subscription subscription)
    @cython.locals(removed=Subscription, last=Subscription)
    cdef Subscription leave(self, object session)
    @cython.locals(member=Subscription)
    cpdef bint has_persistent(self) except -1
    @cython.locals(persistent=list)
    cpdef list persistent_members(self)


@cython.final
cdef class Route(Entry):
    cdef readonly list targets, groups


@cython.final
cdef class Subscribers:
    cdef dict many, groups
    cdef list targets

    cdef Subscription only(self)
    cdef bint is_empty(self) except -1
    @cython.locals(before=Target)
    cdef Subscription add(self, Subscription subscription)
    @cython.locals(target=Target)
    cdef Subscription remove(self, object session)
    cdef list listed(self)
    @cython.locals(target=Target, group=Group)
    cpdef list subscriptions(self)  # called from a generator, which has no C types


@cython.final
cdef class Router:
    cdef readonly Py_ssize_t subscription_count, group_count, hub_filters
    cdef readonly unsigned long long generation
    cdef readonly RouteCache cache
    cdef dict exact
    cdef Trie wildcards
    cdef public object wake

    @cython.locals(route=Route)
    cpdef Route match(self, bytes topic)
    @cython.locals(filter=bytes, replaced=Subscription)
    cpdef Subscription subscribe(self, Subscription subscription)
    @cython.locals(removed=Subscription, subscribers=Subscribers)
    cpdef Subscription unsubscribe(self, object session, bytes filter, bytes group)

    cpdef bint is_only(self, Subscription subscription) except -1
    cpdef object place(self, bytes filter, object kept)

    cdef object _at(self, bytes filter)
    cdef object _kept(self, bytes filter)
    cpdef bint _wake_all(self, list found) except -1  # called from a generator, which has no C types
    cdef int _put(self, bytes filter, object kept) except -1
    @cython.locals(subscribers=Subscribers)
    cdef Subscribers _subscribers(self, bytes filter)
    @cython.locals(only=Subscription, subscribers=Subscribers)
    cdef int _shrink(self, bytes filter, object kept) except -1
    cdef int _drop(self, bytes filter) except -1
    cdef int _changed(self, bytes filter) except -1
    @cython.locals(group=Group)
    cdef Subscription _join(self, Subscribers subscribers, Subscription subscription, bytes name)
    @cython.locals(group=Group, removed=Subscription, groups=dict)
    cdef Subscription _leave(self, Subscribers subscribers, object session, bytes filter, bytes name)
    @cython.locals(found=list)
    cdef Route _find(self, bytes topic)
    @cython.locals(found=list)
    cdef list _matching(self, bytes topic)


cdef bint _is_wildcard(bytes filter) except -1

@cython.locals(subscribers=Subscribers, groups=list, plain=list, size=Py_ssize_t)
cdef Route _route(list found)

@cython.locals(targets=list, target=Target, before=Target, subscriptions=list, size=Py_ssize_t)
cdef Route _merged(list plain, list groups, Py_ssize_t size)
