from cpython.array cimport array
from libc.stdint cimport uint64_t


cpdef array new_words()
cpdef int add_words(array words, uint64_t one, uint64_t two, uint64_t three, uint64_t four) except -1
cpdef uint64_t word_at(array words, Py_ssize_t index) except? 0xFFFFFFFFFFFFFFFF
cpdef uint64_t long_at(bytes data, Py_ssize_t at) except? 0xFFFFFFFFFFFFFFFF
cpdef int short_at(bytes data, Py_ssize_t at) except -1
