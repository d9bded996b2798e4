cimport cython

cpdef list request(object steps)

@cython.locals(total=Py_ssize_t, part=bytes, parts=list)
cpdef tuple append(object key, object writer, object sequence, tuple room, list records, tuple settled=*)

@cython.locals(at=Py_ssize_t)
cpdef tuple appended_run(bytes raw, Py_ssize_t records)

cpdef bytes sized(bytes head, Py_ssize_t body_bytes)

@cython.locals(at=Py_ssize_t, size=Py_ssize_t, count=Py_ssize_t, results=list)
cpdef list answers(bytes raw)
