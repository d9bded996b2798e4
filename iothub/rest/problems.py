"""Every refusal of the API as problem+json (RFC 9457) with a stable `code`; and which refusal an error is.

Knows no path. A text names what happened and what to do; what it says of commands is for the command line and is left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from enum import Enum
from http import HTTPStatus

from starlette.responses import Response

from iothub.base.errors import (
    BackendError,
    ConfigError,
    ConflictError,
    DeniedError,
    IotHubError,
    NotFoundError,
    TenantLimitError,
    UnavailableError,
)
from iothub.base.text import printable

MEDIA_TYPE = "application/problem+json"
DEFECT = "a defect of the API: its log has more"
_COMMAND = re.compile(r"[:;,] [^:;`]*`iothub [^`]*`[^;]*|[:;] run `iothub [^`]*`[^;]*")


class Code(Enum):
    """The stable codes: status, and what `code` says."""

    MALFORMED_JSON = 400, "malformed_json"
    UNAUTHENTICATED = 401, "unauthenticated"
    LOGIN_FAILED = 401, "login_failed"
    FORBIDDEN = 403, "forbidden"
    CROSS_ORIGIN = 403, "cross_origin"
    NOT_FOUND = 404, "not_found"
    METHOD_NOT_ALLOWED = 405, "method_not_allowed"
    BODY_TOO_SLOW = 408, "body_too_slow"
    CONFLICT = 409, "conflict"
    IDEMPOTENCY_IN_PROGRESS = 409, "idempotency_in_progress"
    PRECONDITION_FAILED = 412, "precondition_failed"
    BODY_TOO_LARGE = 413, "body_too_large"
    UNSUPPORTED_MEDIA_TYPE = 415, "unsupported_media_type"
    INVALID = 422, "invalid"
    IDEMPOTENCY_KEY_REUSED = 409, "idempotency_key_reused"
    LIMIT_EXCEEDED = 429, "limit_exceeded"
    TOO_MANY_FAILURES = 429, "too_many_failures"
    DEFECT = 500, "defect"
    FAILED = 500, "failed"
    UNAVAILABLE = 503, "unavailable"
    BUSY = 503, "busy"

    @property
    def status(self) -> int:
        return int(self.value[0])

    @property
    def word(self) -> str:
        return str(self.value[1])


class ProblemError(Exception):
    """A refusal. `errors`: what is wrong with which field, where that is known."""

    def __init__(
        self,
        code: Code,
        detail: str,
        *,
        errors: Sequence[Mapping[str, object]] = (),
        headers: Mapping[str, str] | None = None,
        with_commands: str = "",
    ) -> None:
        """`with_commands`: the detail with what it says of commands, for `iothub --context`."""
        super().__init__(detail)
        self.with_commands = with_commands
        self.code = code
        self.detail = detail
        self.errors = errors
        self.headers = dict(headers or {})


def problem_of(error: IotHubError, *, is_platform: bool) -> ProblemError:
    """Return the refusal that an error of the product is. A tenant's key hears nothing of servers, files and addresses."""
    code = _code_of(error)
    text = without_commands(str(error))
    if code.status >= 500 and not is_platform:
        return ProblemError(code, "not available at the moment: try again later", headers=_later(code))
    errors = [_error_of(line) for line in error.details]
    return ProblemError(code, text, errors=errors, headers=_later(code), with_commands=str(error))


def response_of(problem: ProblemError) -> Response:
    """Write a refusal. ASCII alone, so that every text can be written."""
    headers = {**problem.headers, "Cache-Control": "no-store"}
    return Response(json.dumps(body_of(problem)), problem.code.status, headers, MEDIA_TYPE)


def body_of(problem: ProblemError) -> dict[str, object]:
    """Return a refusal as an object."""
    status = problem.code.status
    body: dict[str, object] = {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "code": problem.code.word,
        "detail": printable(problem.detail),
    }
    if problem.with_commands not in ("", problem.detail):
        body["with_commands"] = printable(problem.with_commands)
    if problem.errors:
        body["errors"] = list(problem.errors)
    return body


def without_commands(text: str) -> str:
    """Return an error's text without what it says of commands.

    >>> without_commands("there is no tenant 'x': `iothub tenant list` shows them")
    "there is no tenant 'x'"
    """
    return _COMMAND.sub("", text)


def _error_of(line: str) -> dict[str, str]:
    detail = without_commands(line)
    return {"detail": detail} if detail == line else {"detail": detail, "with_commands": line}


def _code_of(error: IotHubError) -> Code:
    if isinstance(error, TenantLimitError):
        return Code.LIMIT_EXCEEDED
    for kind, code in _CODES.items():
        if isinstance(error, kind):
            return code
    return Code.FAILED


def _later(code: Code) -> dict[str, str]:
    return {"Retry-After": "1"} if code.status in (429, 503) else {}


_CODES: dict[type[IotHubError], Code] = {
    ConfigError: Code.INVALID,
    NotFoundError: Code.NOT_FOUND,
    ConflictError: Code.CONFLICT,
    DeniedError: Code.FORBIDDEN,
    BackendError: Code.UNAVAILABLE,
    UnavailableError: Code.UNAVAILABLE,
}
