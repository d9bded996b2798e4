cimport cython

from iothub.engine.message cimport Message


@cython.final
@cython.no_gc  # neither an entry nor its message refers to whoever has it
cdef class RetainedEntry:
    cdef readonly bytes topic
    cdef readonly long long version, expires_at_ms
    cdef readonly Py_ssize_t size
    cdef public Message message


@cython.final
@cython.no_gc  # a node has its children, and no child its parent
cdef class Node:
    cdef readonly dict children
    cdef readonly RetainedEntry entry


@cython.final
cdef class RetainedIndex:
    cdef readonly Node root
    cdef dict deleted
    cdef readonly long long messages, bytes, changes

    @cython.locals(node=Node)
    cpdef RetainedEntry get(self, bytes topic)
    cdef Node _find(self, bytes topic)
    @cython.locals(node=Node, child=Node, old=RetainedEntry)
    cpdef RetainedEntry put(self, bytes topic, long long version, long long expires_at_ms, Py_ssize_t size)
    @cython.locals(node=Node, path=list, child=Node, entry=RetainedEntry)
    cpdef RetainedEntry remove(self, bytes topic, long long version)
    @cython.locals(entry=RetainedEntry)
    cpdef RetainedEntry renew(self, bytes topic)
    @cython.locals(node=Node, parent=Node)
    cdef object _prune(self, list path, list levels)


@cython.final
cdef class Matches:
    cdef Node root
    cdef list levels, lists, depths
    cdef bint is_open
    cdef Node left_over

    @cython.locals(found=list, node=Node, entry=RetainedEntry)
    cpdef list next_entries(self, long long now_ms, Py_ssize_t nodes, Py_ssize_t count, long long size_bytes)
    @cython.locals(nodes=list, depth=Py_ssize_t, node=Node, child=Node, level=bytes)
    cdef Node _visit(self)
    @cython.locals(nodes=list)
    cdef object _descend(self, Node node, Py_ssize_t depth)


@cython.locals(messages=list, entry=RetainedEntry, message=Message)
cpdef list remembered(list entries, double now)
