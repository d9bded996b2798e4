from iothub.engine.message cimport Message


cpdef Py_ssize_t append_frame(bytearray out, Message message, bint is_v5, bint is_identified, Py_ssize_t size) except -1
