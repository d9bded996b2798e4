cimport cython

from iothub.engine.message cimport Message


cpdef bytes varint(Py_ssize_t number)
cpdef bytes short(int number)
@cython.locals(identifier=bytes, size=Py_ssize_t, length=bytes)
cpdef bytes assemble(bytes topic, bytes payload, bytes properties, bint is_v5, bint is_identified)
cpdef bytes shared_frame(Message message, bint is_v5, bint is_identified)
@cython.locals(properties=bytes)
cpdef bytes own_properties(Message message, long long expiry, tuple identifiers, int alias)
@cython.locals(index=Py_ssize_t)
cpdef Py_ssize_t identifier_at(bytes frame) except -1
cpdef int append_ack(bytearray out, int header, int packet_id, int code) except -1
