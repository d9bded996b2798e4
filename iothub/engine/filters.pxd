cimport cython

cdef int _HASH, _DOLLAR, _PLUS, _SLASH

cpdef tuple split_share(bytes filter)
cpdef bint topic_matches(bytes filter, bytes topic) except -1
cpdef bint covers(bytes allowed, bytes requested) except -1
cpdef int check_topic_name(bytes topic, Py_ssize_t max_levels, Py_ssize_t max_bytes) except -1
cpdef int check_topic_filter(bytes filter, Py_ssize_t max_levels, Py_ssize_t max_bytes) except -1

cdef bint _is_text(bytes text) except -1

@cython.locals(chars="const unsigned char*", char="unsigned char", i=Py_ssize_t, last=Py_ssize_t)
cdef bint _has_valid_wildcards(bytes filter) except -1

@cython.locals(a="const unsigned char*", b="const unsigned char*", i=Py_ssize_t, j=Py_ssize_t, end_a=Py_ssize_t, end_b=Py_ssize_t)
cdef bint _fits(bytes pattern, bytes text) except -1
