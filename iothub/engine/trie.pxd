cimport cython


@cython.final
cdef class Node:
    cdef readonly dict children
    cdef readonly Node plus
    cdef readonly object here, rest

    cdef bint is_empty(self) except -1
    cdef Node child(self, bytes level)
    @cython.locals(child=Node)
    cdef Node grow(self, bytes level)
    @cython.locals(children=dict)
    cdef void cut(self, bytes level) except *


@cython.final
cdef class Trie:
    cdef readonly Node root

    @cython.locals(node=Node, level=bytes)
    cpdef object get(self, bytes filter)
    @cython.locals(node=Node, level=bytes)
    cpdef void put(self, bytes filter, object value) except *
    @cython.locals(node=Node, level=bytes, levels=list, path=list)
    cpdef void remove(self, bytes filter) except *
    @cython.locals(node=Node, child=Node, level=bytes, nodes=list, below=list, start=Py_ssize_t, slash=Py_ssize_t, is_hidden=bint)
    cpdef void match(self, bytes topic, list found) except *
    @cython.locals(node=Node, nodes=list)
    cpdef void clear(self) except *
    @cython.locals(node=Node, nodes=list)
    cpdef list values(self)
