"""The bytes of the hub's local socket: JSON objects, each behind its length, and what may stand in them.

Knows no socket and no verb: sans I/O, for the hub's side and the command line's.

    each side   {"protocol": 1}                                                  its hello, before anything is read
    asker       {"verb": text, "tenant": text, "argument": object}               one request
    hub         {"rows": [object, ...]} ...  then  {"result": object}  or  {"error": text, "exit_code": number, "details": [text, ...] if any}

A frame is 4 bytes of length, big-endian, and the object in UTF-8. Invariant: whatever the bytes are, a decoder holds no more than one frame
of `MAX_BYTES`, and answers with objects or `BadFrameError`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from iothub.base.errors import ConflictError, IotHubError, error_of
from iothub.records.admin_commands import Json, Request

PROTOCOL = 1
MAX_BYTES = 1 << 20
"""Of a frame. The longest row has two texts of 65,535 bytes (§1.5.4), each byte of which JSON may write as six."""

_GATHERED_BYTES = 64 << 10  # of rows in one frame, about
_LENGTH_BYTES = 4
_DETAILS, _DETAIL_CHARS = 50, 500  # of a refusal


class BadFrameError(IotHubError):
    """The other side does not speak this protocol."""


class FrameDecoder:
    """Cuts a stream of bytes into objects."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Json]:
        """Take bytes and yield the objects that are whole now. Raises BadFrameError; nothing can be read after that."""
        self._buffer += data
        while len(self._buffer) >= _LENGTH_BYTES:
            size = int.from_bytes(self._buffer[:_LENGTH_BYTES], "big")
            if size > MAX_BYTES:
                raise BadFrameError(f"a frame of {size} bytes, expected at most {MAX_BYTES}")
            end = _LENGTH_BYTES + size
            if len(self._buffer) < end:
                return
            body = bytes(self._buffer[_LENGTH_BYTES:end])
            del self._buffer[:end]
            yield _object(body)


def encode(frame: Json) -> bytes:
    """Return a frame's bytes. Raises BadFrameError: it would be too long."""
    body = json.dumps(frame, separators=(",", ":")).encode()
    if len(body) > MAX_BYTES:
        raise BadFrameError(f"a frame of {len(body)} bytes, expected at most {MAX_BYTES}")
    return len(body).to_bytes(_LENGTH_BYTES, "big") + body


def hello() -> bytes:
    return encode({"protocol": PROTOCOL})


def check_hello(frame: Json) -> None:
    """Raises BadFrameError: that is none. ConflictError: it is of another version."""
    version = frame.get("protocol")
    if not isinstance(version, int):
        raise BadFrameError("no hello, expected one with a protocol number")
    if version != PROTOCOL:
        raise ConflictError(
            f"the hub and this command are of different versions (admin protocol {version} and {PROTOCOL}): "
            "use the command of the program that the hub runs"
        )


def request_frame(request: Request) -> bytes:
    return encode({"verb": request.verb, "tenant": request.tenant, "argument": request.argument})


def request_in(frame: Json) -> Request:
    """Raises BadFrameError."""
    verb, tenant, argument = frame.get("verb"), frame.get("tenant"), frame.get("argument")
    if not (isinstance(verb, str) and isinstance(tenant, str) and isinstance(argument, dict)):
        raise BadFrameError("no request, expected verb, tenant and argument")
    return Request(verb, tenant, argument)


def row_frames(rows: Iterable[Json]) -> Iterator[bytes]:
    """Yield rows in as few frames as a moderate size allows; one without any for none."""
    gathered: list[Json] = []
    size = 0
    for row in rows:
        length = len(json.dumps(row))
        if gathered and size + length > _GATHERED_BYTES:
            yield encode({"rows": gathered})
            gathered, size = [], 0
        gathered.append(row)
        size += length
    yield encode({"rows": gathered})


def result_frame(result: Json) -> bytes:
    return encode({"result": result})


def refusal_frame(error: IotHubError) -> bytes:
    return encode(refusal(error))


def refusal(error: IotHubError) -> dict[str, object]:
    """Return the fields that say why a request was refused: `rows_in` raises an error of the same class."""
    fields: dict[str, object] = {"error": str(error)[: MAX_BYTES // 8], "exit_code": error.exit_code}
    if error.details:
        fields["details"] = [text[:_DETAIL_CHARS] for text in error.details[:_DETAILS]]
    return fields


def rows_in(frame: Json) -> list[Json] | None:
    """Return the rows of an answer's frame, None if it is the last one (`result_in`). Raises BadFrameError, or the refusal that it is."""
    if "error" in frame:
        details = frame.get("details")
        lines = map(str, details) if isinstance(details, list) else ()
        raise error_of(frame.get("exit_code"), str(frame["error"]), lines)
    if "result" in frame:
        return None
    rows = frame.get("rows")
    if not (isinstance(rows, list) and all(isinstance(row, dict) for row in rows)):
        raise BadFrameError("no answer, expected rows, a result or an error")
    return rows


def result_in(frame: Json) -> Json:
    """Return the result of an answer's last frame. Raises BadFrameError."""
    result = frame.get("result")
    if not isinstance(result, dict):
        raise BadFrameError("no answer, expected a result")
    return result


def _object(body: bytes) -> Json:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):  # ValueError: no UTF-8, no JSON, a number of too many digits
        raise BadFrameError("a frame without JSON") from None
    if not isinstance(value, dict):
        raise BadFrameError("a frame without an object")
    return value
