cimport cython

from iothub.engine.message cimport Message


cpdef bytes varint(Py_ssize_t number)
cpdef bytes short(int number)
@cython.locals(identifier=bytes, size=Py_ssize_t, length=bytes)
cpdef bytes assemble(bytes topic, bytes payload, bytes properties, bint is_v5, bint is_identified)
cpdef bytes shared_frame(Message message, bint is_v5, bint is_identified)
cpdef bint has_frame(Message message) except -1
@cython.locals(remaining=Py_ssize_t)
cpdef Py_ssize_t frame_size(Message message, bint is_v5, bint is_identified) except -1
@cython.locals(size=Py_ssize_t, length=Py_ssize_t)
cdef Py_ssize_t _remaining_length(Message message, bint is_v5, bint is_identified) except -1
cdef Py_ssize_t _varint_size(Py_ssize_t number) except -1
@cython.locals(frame=bytes, start=Py_ssize_t)
cpdef Py_ssize_t append_frame(bytearray out, Message message, bint is_v5, bint is_identified, Py_ssize_t size) except -1
@cython.locals(properties=bytes)
cpdef bytes own_properties(Message message, long long expiry, tuple identifiers, int alias)
@cython.locals(index=Py_ssize_t)
cpdef Py_ssize_t identifier_at(bytes frame) except -1
cpdef int append_ack(bytearray out, int header, int packet_id, int code) except -1
